"""Where recorded streams and bodies are found that are not part of the repository.

They stand in a folder beside it. Without that folder the tests of recordings have no cases.
"""

from pathlib import Path

SHARED = Path(__file__).parents[2] / "shared"
FIXTURES = SHARED / "fixtures"
QUIRKS = SHARED / "quirks"
