// The session: its user, its connections, and the list of commands that were run. The console does nothing but run commands.
//
//   pages      one connection, whose database only the pages choose. Nothing that a user types goes through it
//   terminal   one of its own: SELECT, MULTI, AUTH and CLIENT REPLY there change nothing here
//   nodes      in a cluster, some to other nodes, through this one
import { useEffect, useReducer } from "preact/hooks";
import * as rights from "./rights.js";
import { Connection, Refused, bytes, line, object, show, text } from "./resp.js";

const SHOWN_MAX = 200;
/** Connections to other nodes that are kept: the server has room for some consoles only. */
const NODES_MAX = 3;

const session = {
  state: "connecting", // connecting, login, ready, lost
  error: "",
  user: "",
  database: 0,
  connection: null,
  credentials: null,
  // Whether the server is a node of a cluster.
  isNode: false,
  // When the server was heard last, once it is lost.
  heard: 0,
  commands: [],
  toasts: [],
  leaving: null,
};
const listeners = new Set();
const nodes = new Map();

function changed() {
  for (const listener of listeners) listener();
}

export function update(fields) {
  Object.assign(session, fields);
  changed();
}

/** The session; the component is drawn anew when it changes. */
export function useSession() {
  const [, draw] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    listeners.add(draw);
    return () => listeners.delete(draw);
  }, []);
  return session;
}

async function greet(connection, credentials) {
  const auth = credentials ? ["AUTH", bytes(credentials.user), bytes(credentials.password)] : [];
  const about = object(await connection.run(["HELLO", 3, ...auth]));
  await connection.pipeline([
    ["CLIENT", "SETNAME", "console"],
    ["CLIENT", "SETINFO", "LIB-NAME", "dunlin-console"],
  ]);
  return about;
}

/** Of the last login, for a page that is loaded anew: whose it was, so that nobody becomes `default` without a word. */
export const lastUser = () => sessionStorage.getItem("user");

/** Begins: as the default user if it needs no password and nobody else was logged in. */
export function begin() {
  if (lastUser()) update({ state: "login" });
  else connect();
}

/** Connects, as the default user unless credentials are given. */
export async function connect(credentials = null) {
  close();
  const connection = new Connection();
  try {
    const { mode } = await greet(connection, credentials);
    session.isNode = mode === "cluster";
    const [who, selected] = await connection.pipeline([["ACL", "WHOAMI"], ["SELECT", session.database]]);
    if (selected !== "OK") {
      toast(`Database ${session.database} cannot be used: ${selected.message}`, "bad");
      session.database = 0;
    }
    const user = who instanceof Error ? (credentials?.user ?? "default") : show(text(who));
    if (session.state !== "lost" || user !== session.user) await rights.ask(connection, user);
    // Nothing runs on a connection before its database is the one that is shown.
    Object.assign(session, { connection, user, credentials, state: "ready", error: "" });
    sessionStorage.setItem("user", user === "default" && !credentials ? "" : user);
    connection.onclose = () => {
      if (session.connection !== connection) return;
      Object.assign(session, { state: "lost", heard: connection.heard, connection: null });
      close();
      changed();
      setTimeout(reconnect, 1000);
    };
  } catch (error) {
    connection.close();
    if (session.state === "lost" && !(error instanceof Refused)) {
      setTimeout(reconnect, 2000);
      return;
    }
    const isRefused = error instanceof Refused && ["NOAUTH", "WRONGPASS", "NOPERM"].includes(error.code);
    session.error = isRefused && !credentials ? "" : error.message.replace(/^(WRONGPASS|NOPERM) /, "");
    session.state = "login";
  }
  changed();
}

function reconnect() {
  if (session.state === "lost") connect(session.credentials);
}

function close() {
  const { connection } = session;
  session.connection = null;
  connection?.close();
  for (const other of nodes.values()) other.close();
  nodes.clear();
  terminal.close();
}

export function logout() {
  close();
  Object.assign(session, { credentials: null, state: "login", error: "", commands: [], heard: 0, database: 0 });
  sessionStorage.setItem("user", session.user);
  changed();
}

/** The database that the pages show. */
export const pagesDatabase = () => session.database;
export const isConnected = () => session.state === "ready";

/** The pages' connection. */
function current() {
  if (session.state !== "ready" || !session.connection) throw new Error("the server cannot be reached");
  return session.connection;
}

/** Another connection of the same user, for what takes one over (MONITOR), or to another node. */
export async function another(node = null) {
  const connection = new Connection(node);
  try {
    await greet(connection, session.credentials);
  } catch (error) {
    connection.close();
    throw error;
  }
  return connection;
}

/** The connection to a node of the cluster by its address; null is this server. */
export async function nodeAt(node) {
  if (!node) return current();
  let known = nodes.get(node);
  if (!known || known.closed) {
    known = await another(node);
    if (session.database) await known.run(["SELECT", session.database]);
    nodes.set(node, known);
  }
  // The one that was used longest ago goes.
  nodes.delete(node);
  nodes.set(node, known);
  for (const [old, connection] of nodes) {
    if (nodes.size <= NODES_MAX) break;
    if (connection.waiting.length > 0) continue;
    connection.close();
    nodes.delete(old);
  }
  return known;
}

/** The terminal's own connection, and what is known of its state. */
export const terminal = {
  connection: null,
  node: null,
  database: 0,
  user: "",
  queued: null,
  isSilent: false,
  async open(node = null) {
    if (!this.connection || this.connection.closed || node !== this.node) {
      this.close();
      const connection = await another(node);
      Object.assign(this, { connection, node, user: session.user });
    }
    return this.connection;
  },
  close() {
    this.connection?.close();
    Object.assign(this, { connection: null, node: null, database: 0, user: "", queued: null, isSilent: false });
  },
};

const SECRETS = /^(requirepass|masterauth|primaryauth|tls-.*-pass|sentinel-pass)$/i;

/** The words of a command as they may be shown and kept: without passwords. */
export function conceal(args) {
  const words = args.map(String);
  const [first, second] = words.map((word) => word.toUpperCase());
  const isBehind = (at, name, distance) => words[at - distance]?.toUpperCase() === name;
  const hides = (word, at) => {
    if (first === "AUTH") return at > 0 && at === words.length - 1;
    if (first === "HELLO") return isBehind(at, "AUTH", 2);
    if (first === "MIGRATE") return isBehind(at, "AUTH", 1) || isBehind(at, "AUTH2", 2);
    if (first === "ACL" && second === "SETUSER") return at > 2 && /^[<>#!]/.test(word);
    if (first === "CONFIG" && second === "SET") return at > 2 && at % 2 === 1 && SECRETS.test(words[at - 1]);
    return false;
  };
  return words.map((word, at) => (hides(word, at) ? `${/^[<>#!]/.test(word) ? word[0] : ""}***` : word));
}

/** Notes a command that somebody has asked for, while it runs: it is shown at the foot. */
export async function noted(args, work) {
  const shown = { text: line(conceal(args)), at: Date.now(), state: "runs" };
  session.commands = [shown, ...session.commands].slice(0, SHOWN_MAX);
  changed();
  const begun = performance.now();
  try {
    const answer = await work();
    shown.state = answer instanceof Error ? "failed" : "done";
    if (answer instanceof Error) shown.error = answer.message;
    return answer;
  } catch (error) {
    shown.state = "failed";
    shown.error = error.message;
    throw error;
  } finally {
    shown.took = performance.now() - begun;
    changed();
  }
}

/** Runs a command that somebody has asked for: it is shown. Throws what the server refuses. */
export function run(...args) {
  return noted(args, () => ask(...args));
}

/** Runs a command that a page needs to be drawn. */
export async function ask(...args) {
  const [answer] = await askAll([args]);
  if (answer instanceof Error) throw answer;
  return answer;
}

/** The same of several; errors are among the answers. On the pages' connection, or another one. */
export async function askAll(commands, connection = current()) {
  const known = commands.map((args) => {
    try {
      rights.check(args);
      return null;
    } catch (error) {
      return error;
    }
  });
  const answers = await connection.pipeline(commands.filter((_, at) => !known[at]));
  return commands.map((args, at) => {
    if (known[at]) return known[at];
    const answer = answers.shift();
    rights.learn(args, answer);
    return answer;
  });
}

/** Runs a command and says how it went. */
export async function act(said, ...args) {
  try {
    const answer = await run(...args);
    toast(typeof said === "function" ? said(answer) : said);
    return answer;
  } catch (error) {
    fail(error);
    return error;
  }
}

/** Says what went wrong. */
export function fail(error) {
  toast(rights.explain(error) ?? error.message, "bad");
}

export function toast(text, kind = "good") {
  const entry = { text, kind, id: Math.random() };
  session.toasts = [...session.toasts, entry].slice(-3);
  changed();
  setTimeout(() => dismiss(entry), kind === "bad" ? 12000 : 5000);
}

export function dismiss(entry) {
  session.toasts = session.toasts.filter((other) => other !== entry);
  changed();
}

/** Chooses the pages' database. */
export async function select(database) {
  if (database === session.database) return;
  try {
    await ask("SELECT", database);
    session.database = database;
    for (const other of nodes.values()) other.close();
    nodes.clear();
  } catch (error) {
    fail(error);
  }
  changed();
}

/** How many databases there are; 16 where the server does not say. */
export async function databases() {
  try {
    return Number(object(await ask("CONFIG", "GET", "databases")).databases) || 16;
  } catch {
    return 16;
  }
}
