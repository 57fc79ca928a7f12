// node run_answers.mjs FOLDER <jobs.json >answers.json, with the package in FOLDER
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { answers } from "./answers.js";

const { loadCore } = await import(pathToFileURL(`${process.argv[2]}/flipbit.js`));
const core = await loadCore();
console.log(JSON.stringify(answers(core, JSON.parse(readFileSync(0, "utf8")))));
