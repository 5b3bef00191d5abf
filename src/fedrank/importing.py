"""What users name by its import path: a module, or something in it (`module:attribute`)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from fedrank.errors import ConfigError
from fedrank.parameters import did_you_mean


def import_path(thing: Any) -> str:
    """Return where a class or a function is defined.

    >>> import_path(Path)
    'pathlib:Path'
    """
    return f"{thing.__module__}:{thing.__qualname__}"


def imported_module(name: str) -> ModuleType:
    """Import a module that is installed or in the current directory, as `python -m` finds it.

    >>> imported_module("json").__name__
    'json'
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from error
        raise ConfigError(
            f"there is no module {name!r}: neither in the current directory ({here}) nor installed"
        ) from None
    except (Exception, SystemExit) as error:  # a user's module can raise any exception
        raise _broken(name, error) from error


def imported(path: str) -> Any:
    """Return what has an import path.

    >>> imported("pathlib:Path") is Path
    True
    >>> imported("pathlib:Pat")
    Traceback (most recent call last):
    fedrank.errors.ConfigError: the module 'pathlib' has no 'Pat'; did you mean 'Path'?
    """
    module, _, name = path.partition(":")
    found: Any = imported_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in dir(found) if not each.startswith("_")]
            raise ConfigError(f"the module {module!r} has no {name!r}{did_you_mean(part, known)}")
        found = getattr(found, part)
    return found


def _broken(name: str, error: BaseException) -> ConfigError:
    return ConfigError(f"the module {name!r} cannot be imported ({type(error).__name__}: {error})")
