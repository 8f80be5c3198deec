// A module of this repository as the main program of Pyodide's Python: node run.mjs REPOSITORY -m MODULE [ARGUMENT...]
// Nothing but Python's standard library is there, and no sockets.

import { loadPyodide } from "pyodide";

const [repository, dashM, module, ...options] = process.argv.slice(2);
if (dashM !== "-m" || module === undefined) {
  console.error("usage: node run.mjs REPOSITORY -m MODULE [ARGUMENT...]");
  process.exit(2);
}
const pyodide = await loadPyodide();
pyodide.mountNodeFS("/repository", repository);
pyodide.globals.set("words", pyodide.toPy([module, ...options]));
process.exitCode = pyodide.runPython(`
import platform, runpy, sys

sys.dont_write_bytecode = True
sys.path[:0] = ["/repository/src", "/repository"]
sys.argv = list(words)
print(f"Python {platform.python_version()}, {sys.platform} {platform.machine()}")
try:
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    status = 0
except SystemExit as end:
    status = end.code if isinstance(end.code, int) else int(end.code is not None)
status
`);
