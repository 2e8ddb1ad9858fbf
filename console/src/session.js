// The session: its user, its connection, and the list of commands that were run. The console does nothing but run commands.
import { useEffect, useReducer } from "preact/hooks";
import { Connection, Refused, bytes, line, show } from "./resp.js";

const SHOWN_MAX = 200;

const session = {
  state: "connecting", // connecting, login, ready, lost
  error: "",
  user: "",
  database: 0,
  connection: null,
  credentials: null,
  commands: [],
  toasts: [],
};
const listeners = new Set();

function changed() {
  for (const listener of listeners) listener();
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
  await connection.run(["HELLO", 3, ...auth]);
  const [name] = await connection.pipeline([
    ["CLIENT", "SETNAME", "console"],
    ["CLIENT", "SETINFO", "LIB-NAME", "dunlin-console"],
  ]);
  return name;
}

/** Connects, as the default user unless credentials are given. */
export async function connect(credentials = null) {
  session.connection?.close();
  const connection = new Connection();
  session.connection = connection;
  session.error = "";
  try {
    await greet(connection, credentials);
    const who = await connection.pipeline([["ACL", "WHOAMI"], ["SELECT", session.database]]);
    session.user = who[0] instanceof Error ? (credentials?.user ?? "default") : show(who[0]);
    session.credentials = credentials;
    session.state = "ready";
    connection.onclose = () => {
      if (session.connection !== connection) return;
      session.state = "lost";
      changed();
      setTimeout(reconnect, 1000);
    };
  } catch (error) {
    connection.close();
    if (error instanceof Refused && ["NOAUTH", "WRONGPASS", "NOPERM"].includes(error.code)) {
      session.state = "login";
      session.error = credentials ? error.message.replace(/^\w+ /, "") : "";
    } else if (error instanceof Refused) {
      session.state = "login";
      session.error = error.message;
    } else if (session.state === "lost") {
      setTimeout(reconnect, 2000);
    } else {
      session.state = "login";
      session.error = error.message;
    }
  }
  changed();
}

function reconnect() {
  if (session.state === "lost") connect(session.credentials);
}

export function logout() {
  const connection = session.connection;
  session.connection = null;
  session.credentials = null;
  session.state = "login";
  session.commands = [];
  connection?.close();
  changed();
}

/** A second connection of the same user, for what takes one over (MONITOR). */
export async function another() {
  const connection = new Connection();
  await greet(connection, session.credentials);
  return connection;
}

const SECRETS = /^(requirepass|masterauth|primaryauth|tls-.*-pass)$/i;

/** The words of a command as they may be shown: without passwords. */
export function conceal(args) {
  const words = args.map(String);
  const [first, second] = words.map((word) => word.toUpperCase());
  const hides = (word, at) => {
    if (first === "AUTH") return at > 0 && at === words.length - 1;
    if (first === "HELLO") return at === words.findIndex((other) => other.toUpperCase() === "AUTH") + 2 && at > 2;
    if (first === "ACL" && second === "SETUSER") return at > 2 && /^[<>]/.test(word);
    if (first === "CONFIG" && second === "SET") return at > 2 && at % 2 === 1 && SECRETS.test(words[at - 1]);
    return false;
  };
  return words.map((word, at) => (hides(word, at) ? `${/^[<>]/.test(word) ? word[0] : ""}***` : word));
}

/** Runs a command that somebody has asked for: it is shown. Throws what the server refuses. */
export async function run(...args) {
  const shown = { text: line(conceal(args)), at: Date.now(), state: "runs" };
  session.commands = [shown, ...session.commands].slice(0, SHOWN_MAX);
  changed();
  const begun = performance.now();
  try {
    const answer = await session.connection.run(args);
    shown.state = "done";
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

/** Runs a command that a page needs to be drawn. */
export function ask(...args) {
  return session.connection.run(args);
}

/** The same of several; errors are among the answers. */
export function askAll(commands) {
  return session.connection.pipeline(commands);
}

/** Runs a command and says how it went. */
export async function act(said, ...args) {
  try {
    const answer = await run(...args);
    toast(said);
    return answer;
  } catch (error) {
    toast(error.message, "bad");
    return error;
  }
}

export function toast(text, kind = "good") {
  const entry = { text, kind, id: Math.random() };
  session.toasts = [...session.toasts, entry].slice(-3);
  changed();
  setTimeout(() => {
    session.toasts = session.toasts.filter((other) => other !== entry);
    changed();
  }, 5000);
}

export async function select(database) {
  const answer = await act(`Database ${database}`, "SELECT", database);
  if (!(answer instanceof Error)) session.database = database;
  changed();
}
