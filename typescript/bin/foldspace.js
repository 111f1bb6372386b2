#!/usr/bin/env node
import { spawnSync } from "node:child_process";
import { findFoldspaceBin } from "../dist/index.js";

const { status, signal, error } = spawnSync(findFoldspaceBin(), process.argv.slice(2), { stdio: "inherit" });
if (error) throw error;
if (signal) process.kill(process.pid, signal);
process.exit(status ?? 1);
