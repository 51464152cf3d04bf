"""Runs an execution on the caller's thread, one call of one tasklet at a time: for simulations, and tests."""

from jetfast.engine.execution import Execution
from jetfast.engine.execution_listener import ExecutionListener
from jetfast.engine.processor_tasklet import ProcessorTasklet


class SteppedExecution:
    """An opened execution that is started without threads.

    Whoever steps chooses the order. Errors end the execution as they do on threads; only BaseExceptions that are no
    Exceptions (a simulated crash) come out of `step`, and leave everything as it is.
    """

    def __init__(self, execution: Execution, listener: ExecutionListener) -> None:
        self.execution = execution
        self.unopened = set(execution.tasklets)
        self.running = list(execution.tasklets)
        """Tasklets that may be stepped."""
        execution.begin(listener, runners=1)
        self.end_if_done()

    def step(self, tasklet: ProcessorTasklet) -> bool:
        """Call a tasklet of `running` once, having opened it at first; True if anything was done."""
        execution = self.execution
        progress = True
        if execution.error is None:
            try:
                if tasklet in self.unopened:
                    self.unopened.remove(tasklet)
                    tasklet.open()
                progress = tasklet.call()
                if tasklet.finished:
                    self.running.remove(tasklet)
                    tasklet.close(None)
            except Exception as error:
                execution.fail(error)
        self.end_if_done()
        return progress

    def end_if_done(self) -> None:
        """When all tasklets have finished, or an error has come: close what is left, and tell of the end."""
        execution = self.execution
        if execution.error is not None:
            running, self.running = self.running, []
            for tasklet in running:
                try:
                    tasklet.close(execution.error)
                except Exception as error:
                    execution.fail(error)
        if not self.running and execution.runners > 0:
            execution.runner_ended()
