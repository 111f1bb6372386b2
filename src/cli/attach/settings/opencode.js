// Written by `foldspace attach`, and removed by `foldspace detach`. Reports OpenCode's calls to foldspace, which
// records their changes. OpenCode waits for it before and after a call, 5 seconds at most.
import { spawn } from "node:child_process"

const [PROGRAM, ...WORDS] = ["foldspace", "hook", "opencode"]
const parents = new Map()

export const Foldspace = async ({ directory }) => {
  const tell = (hook, input, output) =>
    new Promise((done) => {
      const session = input.sessionID ?? input.properties?.sessionID
      const payload = { hook, directory, parent: parents.get(session), input, output }
      const child = spawn(PROGRAM, WORDS, { stdio: ["pipe", "ignore", "ignore"], timeout: 5000 })
      child.on("error", done)
      child.on("close", done)
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(payload))
    })
  return {
    "chat.message": (input, { message, parts }) => tell("chat.message", input, { message, parts }),
    "tool.execute.before": (input, { args }) => tell("tool.execute.before", input, { args }),
    "tool.execute.after": (input, { title, output, metadata }) =>
      tell("tool.execute.after", input, { title, output, metadata }),
    event: async ({ event }) => {
      const { type, properties } = event
      if (type === "session.created" && properties.info?.parentID) {
        parents.set(properties.info.id, properties.info.parentID)
      }
      // A call that throws has no `tool.execute.after`.
      const failed = type === "message.part.updated" && properties.part?.state?.status === "error"
      const told = ["session.created", "session.idle", "session.deleted", "permission.asked", "permission.replied"]
      if (failed || told.includes(type)) await tell("event", event)
    },
  }
}
