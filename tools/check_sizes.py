#!/usr/bin/env python3
"""Host files of at most 400 lines, functions of at most 80, kernels (.cu, .cuh) of at most 150.

Exits 1 and lists what is too long. --self-test proves that the check can fail."""
import pathlib
import re
import sys

FILE_LINES = 400
FUNCTION_LINES = 80
KERNEL_LINES = 150
FOLDERS = ("core", "plugins", "tests", "examples")

# "path" or "path:function" -> why it may be longer. An exception that is no longer needed is an error.
EXCEPTIONS = {}

LITERAL = re.compile(
    r'R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"'  # raw strings
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",  # not the separators of 1'000
    re.DOTALL)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
NOT_FUNCTIONS = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
NAME = re.compile(r"([A-Za-z_~][\w:~]*|operator[^\s(]+)\s*\(")
MACRO_NAMES = {"TEST_CASE", "TEST_CASE_TEMPLATE", "TEST_CASE_FIXTURE", "TEST_SUITE"}


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def functions(text):
    """(name, first line, lines) of every brace block at namespace or class scope that has a parameter list."""
    literals = LITERAL.sub(blank, text)
    code = PREPROCESSOR.sub(blank, literals)
    stack = []  # (is a function, name, line of its head)
    head_start = 0
    found = []
    line = 1
    for index, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == "{":
            head = code[head_start:index]
            inside = any(entry[0] for entry in stack)
            stripped = re.sub(r"\btemplate\s*<[^{};]*?>\s*(?=\w)", "", head)
            scope = re.match(r"\s*(?:export\s+)?(?:inline\s+)?(?:" + NOT_FUNCTIONS.pattern + r")", stripped)
            name = NAME.search(stripped)
            is_function = not inside and name is not None and not scope
            first = line - head.lstrip().count("\n")
            if is_function and name.group(1) in MACRO_NAMES:
                quoted = re.search(r'"([^"\n]*)"', text[index - len(head.lstrip()):index])
                stack.append((True, quoted.group(1) if quoted else name.group(1), first))
            else:
                stack.append((is_function, name.group(1) if name else "", first))
            head_start = index + 1
        elif char == "}":
            if stack:
                is_function, name, first = stack.pop()
                if is_function:
                    found.append((name, first, line - first + 1))
            head_start = index + 1
        elif char == ";":
            head_start = index + 1
    return found


def complaints_of(path, text):
    """(key, sentence) of everything too long."""
    found = []
    kernel = path.endswith((".cu", ".cuh"))
    count = text.count("\n")
    if not kernel and count > FILE_LINES:
        found.append((path, f"{path}: {count} lines, {FILE_LINES} at most; split it by what its parts are for"))
    limit = KERNEL_LINES if kernel else FUNCTION_LINES
    for name, first, lines in functions(text):
        if lines > limit:
            found.append((f"{path}:{name}", f"{path}:{first}: {name} has {lines} lines, {limit} at most"))
    return found


def check(root):
    complaints, used = [], set()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".cu", ".cuh"} or "node_modules" in path.parts:
                continue
            for key, sentence in complaints_of(str(path.relative_to(root)), path.read_text(encoding="utf-8")):
                if key in EXCEPTIONS:
                    used.add(key)
                else:
                    complaints.append(sentence)
    for key in sorted(set(EXCEPTIONS) - used):
        complaints.append(f"tools/check_sizes.py: the exception for {key} is no longer needed; remove it")
    return complaints


def self_test():
    body = "  x += '{' + \"}\";  // {\n"
    long_function = "int f(int x) {\n" + body * 79 + "}\n"
    short_function = "int f(int x) {\n" + body * 78 + "}\n"
    method = "namespace a {\nclass B : public C {\n public:\n  B() : c_{1} {}\n  void m() const override {\n" + \
        "    if (c_) { d(); }\n" * 79 + "  }\n};\n}  // namespace a\n"
    test_case = 'TEST_CASE("a long one") {\n' + body * 79 + "}\n"
    literal = "const char* text = R\"(\n" + "{ f(x) {\n" * 90 + ")\";\nint g() { return 1'000; }\n"
    many = "namespace a {\n" + "int f(int x) {\n  return x;\n}\n" * 60 + "}\n"
    cases = [
        ("a.cpp", long_function, ["a.cpp:f"]),
        ("a.cpp", short_function, []),
        ("a.cpp", method, ["a.cpp:m"]),
        ("a.cpp", test_case, ["a.cpp:a long one"]),
        ("a.cpp", literal, []),
        ("a.cpp", many, []),
        ("a.cu", long_function, []),
        ("a.h", "int x;\n" * 401, ["a.h"]),
        ("a.h", "int x;\n" * 400, []),
        ("a.cpp", "template <class T>\nvoid t(T x)\n{\n" + body * 80 + "}\n", ["a.cpp:t"]),
    ]
    wrong = []
    for index, (path, text, expected) in enumerate(cases):
        got = [key for key, _ in complaints_of(path, text)]
        if got != expected:
            wrong.append(f"self-test {index}: found {got}, expected {expected}")
    return wrong


def main():
    complaints = self_test()
    if not complaints and "--self-test" not in sys.argv[1:]:
        complaints = check(pathlib.Path(__file__).resolve().parent.parent)
    print("\n".join(complaints) if complaints else "check_sizes: ok")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
