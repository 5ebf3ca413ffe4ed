"""The clients from npm and PyPI, outside of the repository, in the versions that were run."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("WEFT_CLIENTS", Path.home() / ".cache" / "weft-clients"))
PATIENCE = 600.0
READY = "ready"


@dataclass(frozen=True)
class Package:
    """What is installed together: names and versions as npm has them."""

    name: str
    holds: tuple[str, ...]

    @property
    def folder(self) -> Path:
        versions = "-".join(one.rpartition("@")[2] for one in self.holds[:1])
        return CACHE / f"{self.name}-{versions}"

    def install(self) -> Path:
        """Returns the folder, with everything in it; installs it once."""
        ready = self.folder / READY
        if ready.exists() and ready.read_text(encoding="utf-8") == json.dumps(self.holds):
            return self.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "package.json").write_text('{"private":true}', encoding="utf-8")
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *self.holds]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
        ready.write_text(json.dumps(self.holds), encoding="utf-8")
        return self.folder

    def command(self, name: str) -> str:
        """The path of a command that comes with it."""
        return str(self.install() / "node_modules" / ".bin" / name)


@dataclass(frozen=True)
class Environment:
    """A Python environment of its own, for a library that is too large for ours."""

    name: str
    holds: tuple[str, ...]

    def python(self) -> str:
        """The path of its interpreter; installs it once."""
        folder = CACHE / f"{self.name}-{self.holds[0].rpartition('==')[2]}"
        ready = folder / READY
        python = folder / "bin" / "python"
        if not ready.exists():
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(folder)],
                [str(python), "-m", "pip", "install", "-q", *self.holds],
            ):
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=PATIENCE, check=False
                )
                if done.returncode:
                    raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
            ready.touch()
        return str(python)
