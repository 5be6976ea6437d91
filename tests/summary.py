"""Adds up the JUnit files of one run and prints 'N passed, N failed, N skipped' as the last line."""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def main(folder):
    passed = failed = skipped = 0
    for path in sorted(pathlib.Path(folder).glob("*.xml")):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                print(f"failed: {path.stem}: {case.get('classname')} {case.get('name')}")
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                skipped += 1
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
