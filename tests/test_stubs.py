"""The .pyi of each kernel says what the compiled module has: the same names, the same parameters."""

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

KERNELS = Path(__file__).parent.parent / "jetfast" / "kernels"
MODULES = sorted(path.stem for path in KERNELS.glob("*.pyx"))


def declared(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Public names that a module or class body of a stub declares."""
    names: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node
    return {name: node for name, node in names.items() if not name.startswith("_")}


def public(thing: object) -> set[str]:
    """Public names that a compiled module or class brings itself."""
    own = vars(thing)
    names = set()
    for name, value in own.items():
        if name.startswith("_") or isinstance(value, ModuleType):
            continue
        if isinstance(thing, ModuleType) and getattr(value, "__module__", None) != thing.__name__:
            continue
        names.add(name)
    return names


def parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [argument.arg for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]


@pytest.mark.parametrize("module_name", MODULES)
def test_the_stub_and_the_kernel_declare_the_same_names(module_name):
    module = importlib.import_module(f"jetfast.kernels.{module_name}")
    stub = declared(ast.parse((KERNELS / f"{module_name}.pyi").read_text()).body)
    assert public(module) <= set(stub), f"not in the stub: {public(module) - set(stub)}"
    for name, node in stub.items():
        assert hasattr(module, name), f"{module_name}.pyi declares {name}, the kernel lacks it"
        if isinstance(node, ast.ClassDef):
            compiled = getattr(module, name)
            members = declared(node.body)
            missing = {member for member in members if not hasattr(compiled, member)}
            assert not missing, f"{name} lacks {missing}"
            assert public(compiled) <= set(members), f"not in the stub of {name}: {public(compiled) - set(members)}"


@pytest.mark.parametrize("module_name", MODULES)
def test_the_stub_and_the_kernel_take_the_same_parameters(module_name):
    module = importlib.import_module(f"jetfast.kernels.{module_name}")
    compared = 0
    pending = [(module, declared(ast.parse((KERNELS / f"{module_name}.pyi").read_text()).body))]
    while pending:
        owner, names = pending.pop()
        for name, node in names.items():
            if isinstance(node, ast.ClassDef):
                pending.append((getattr(owner, name), declared(node.body)))
            if not isinstance(node, ast.FunctionDef) or any(
                isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in node.decorator_list
            ):
                continue
            wanted = parameters(node)
            try:
                found = list(inspect.signature(getattr(owner, name)).parameters)
            except ValueError:  # no signature in the compiled method: nothing to compare with
                continue
            compared += 1
            assert found == wanted, f"{name}: the stub takes {wanted}, the kernel {found}"
    assert compared > 0
