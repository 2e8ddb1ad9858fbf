// What the user may run. The server is asked once after the login; a refusal that comes later is remembered. A command that
// was refused is not sent again, so that a page that refreshes itself does not fill ACL LOG.
import { Refused, list } from "./resp.js";

/** Commands by which the pages live. Those that read can be tried without harm. */
const READS = [
  ["INFO", "server"],
  ["RECORDER", "EVENTS", 0, 0],
  ["SCAN", 0, "COUNT", 1],
  ["DBSIZE"],
  ["COMMANDLOG", "LEN", "slow"],
  ["COMMANDLOG", "GET", 1, "slow"],
  ["HOTKEYS", "GET"],
  ["CLIENT", "LIST", "TYPE", "pubsub"],
  ["PUBSUB", "CHANNELS", "-"],
  ["CONFIG", "GET", "databases"],
  ["ACL", "USERS"],
  ["ACL", "LOG", 1],
  ["CLUSTER", "STATUS"],
];
const OTHERS = [
  ["RECORDER", "RANGE", 0, 0],
  ["RECORDER", "WHY"],
  ["ACL", "GETUSER", "default"],
  ["ACL", "SETUSER", "-"],
  ["ACL", "DELUSER", "-"],
  ["ACL", "LOG", "RESET"],
  ["ACL", "SAVE"],
  ["CLIENT", "KILL", "ID", 0],
  ["CONFIG", "SET", "hz", 10],
  ["CONFIG", "REWRITE"],
  ["COMMANDLOG", "RESET", "slow"],
  ["HOTKEYS", "START", "METRICS", 1, "CPU"],
  ["HOTKEYS", "STOP"],
  ["HOTKEYS", "RESET"],
  ["BGSAVE"],
  ["BGREWRITEAOF"],
  ["MONITOR"],
  ["PUBLISH", "c", "m"],
  ["SUBSCRIBE", "c"],
];
const WITH_SUBCOMMANDS = new Set(
  ["ACL", "CLIENT", "CLUSTER", "COMMAND", "COMMANDLOG", "CONFIG", "FUNCTION", "HOTKEYS", "LATENCY", "MEMORY", "OBJECT", "PUBSUB", "RECORDER", "SCRIPT", "SLOWLOG", "XGROUP", "XINFO"],
);

let refused = new Map();
let isWhole = false;

/** A command's name as rules have it: `get`, `client|list`. */
export function nameOf(args) {
  const first = String(args[0]).toUpperCase();
  return (WITH_SUBCOMMANDS.has(first) && args.length > 1 ? `${first}|${args[1]}` : first).toLowerCase();
}

/** The rule that the user lacks to run a command; null where none is known to lack. */
export function lacks(...args) {
  const name = nameOf(args);
  return refused.has(name) ? `+${name}` : null;
}

/** Whether all that the pages do is allowed, keys included, as far as the server says so. */
export const mayAll = () => isWhole;

/** Refuses what the server has refused before. */
export function check(args) {
  const error = refused.get(nameOf(args));
  if (error) throw error;
}

/** Remembers a refusal. Keys and channels may differ the next time. */
export function learn(args, answer) {
  if (answer instanceof Refused && answer.code === "NOPERM" && /command/.test(answer.message)) refused.set(nameOf(args), answer);
}

/** What a refusal means to the user; null where it is another error. */
export function explain(error) {
  if (!(error instanceof Refused) || error.code !== "NOPERM") return null;
  const command = /'([^']+)' command/.exec(error.message)?.[1];
  if (command) return `Your user may not run ${command.replace("|", " ").toUpperCase()}. The right that is missing: +${command}`;
  if (/database/.test(error.message)) return "Your user may not use this database.";
  if (/channel/.test(error.message)) return "Your user may not use this channel. The right that is missing: &CHANNEL";
  if (/key/.test(error.message)) return "Your user may not use this key. The right that is missing: ~PATTERN";
  return error.message.replace(/^NOPERM /, "");
}

/** Asks what a user may do: by a dry run, or, if that is refused, by trying what only reads. */
export async function ask(connection, user) {
  refused = new Map();
  isWhole = false;
  const [probe] = await connection.pipeline([["ACL", "DRYRUN", user, "PING"]]);
  if (probe === "OK") {
    const all = [...READS, ...OTHERS];
    const answers = await connection.pipeline(all.map((args) => ["ACL", "DRYRUN", user, ...args]));
    answers.forEach((answer, at) => {
      if (answer === "OK") return;
      learn(all[at], new Refused(`NOPERM ${answer instanceof Error ? answer.message : answer}`));
    });
    const [about] = await connection.pipeline([["ACL", "GETUSER", user]]);
    isWhole = !(about instanceof Error) && hasAllKeys(about);
    return;
  }
  learn(["ACL", "DRYRUN"], probe);
  const answers = await connection.pipeline(READS);
  answers.forEach((answer, at) => learn(READS[at], answer));
  // Who may not read anything of a family is taken for one who may not change it either.
  const family = (args) => String(args[0]);
  for (const args of OTHERS) {
    const reads = READS.filter((read) => family(read) === family(args));
    const first = reads.map((read) => refused.get(nameOf(read)));
    if (reads.length > 0 && first.every(Boolean)) refused.set(nameOf(args), new Refused(first[0].message.replace(nameOf(reads[0]), nameOf(args))));
  }
}

function hasAllKeys(about) {
  const entries = about.entries ?? [];
  const keys = entries.find(([name]) => name === "keys")?.[1];
  const commands = entries.find(([name]) => name === "commands")?.[1];
  return /(^| )~\*( |$)/.test(String(keys)) && /^\+@all$/.test(String(commands)) && list(entries.find(([name]) => name === "selectors")?.[1]).length === 0;
}
