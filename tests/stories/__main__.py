"""Check the stories, or write down what they lead to now; `./dev stories --help` says how."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.stories.telling import tell
from tests.stories.text import StoryError, all_stories, read_story


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev stories", description=__doc__)
    parser.add_argument("--rewrite", action="store_true", help="write what happens now; review it as a diff")
    parser.add_argument("files", nargs="*", type=Path, help="all of tests/stories if none is named")
    chosen = parser.parse_args()
    wrong = 0
    for path in chosen.files or all_stories():
        try:
            story = read_story(path)
            told = tell(story)
        except StoryError as error:
            print(error, file=sys.stderr)
            wrong += 1
            continue
        if chosen.rewrite and told != story.text:
            path.write_text(told, "utf-8")
            print(f"rewrote {path.name}")
        elif difference := story.differences(told):
            print(difference)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
