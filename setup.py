"""Compiles the kernels: one extension per jetfast/kernels/*.pyx, loops from the headers in csrc/.

JETFAST_DEBUG=1     bounds checks, assertions and Cython's annotated HTML
JETFAST_SANITIZE=address,undefined   adds -fsanitize=... (see `make sanitize`)
"""

import os
import sys
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).parent
DEBUG = os.environ.get("JETFAST_DEBUG") == "1"
SANITIZE = os.environ.get("JETFAST_SANITIZE", "")


def compile_arguments() -> list[str]:
    if sys.platform == "win32":
        return ["/std:c++17", "/O2", "/EHsc"]
    # No -march=native: wheels run elsewhere; csrc/jetfast/simd.hpp chooses vector code at run time.
    arguments = ["-std=c++17", "-fvisibility=hidden", "-fno-math-errno", "-Wall", "-Wextra", "-Wno-unused-parameter"]
    arguments += ["-O1", "-g", "-D_GLIBCXX_ASSERTIONS"] if DEBUG or SANITIZE else ["-O3", "-g0", "-DNDEBUG"]
    if not SANITIZE:  # sanitizers check more, and replace the functions that FORTIFY checks
        arguments += ["-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]
    if SANITIZE:
        arguments += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer"]
    return arguments


def link_arguments() -> list[str]:
    if SANITIZE:
        return [f"-fsanitize={SANITIZE}"]
    # Full RELRO: tables of addresses are filled in when the kernel is loaded, and read-only from then on.
    return ["-Wl,-z,relro,-z,now"] if sys.platform == "linux" else []


def extensions() -> list[Extension]:
    headers = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.hpp"))
    return [
        Extension(
            f"jetfast.kernels.{path.stem}",
            [str(path.relative_to(ROOT))],
            include_dirs=["csrc", numpy.get_include()],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
            extra_compile_args=compile_arguments(),
            extra_link_args=link_arguments(),
            depends=[*headers, "setup.py"],  # which has the flags
            language="c++",
        )
        for path in sorted((ROOT / "jetfast" / "kernels").glob("*.pyx"))
    ]


setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        extensions(),
        annotate=DEBUG,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "embedsignature": True,
            "freethreading_compatible": True,
        },
    ),
)
