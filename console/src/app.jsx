// The console: a page that speaks the server's own protocol, with the rights of the user who logs in.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { date } from "./format.js";
import { Clients } from "./pages/clients.jsx";
import { Cluster } from "./pages/cluster.jsx";
import { Config } from "./pages/config.jsx";
import { Keys } from "./pages/keys.jsx";
import { Overview } from "./pages/overview.jsx";
import { Pubsub } from "./pages/pubsub.jsx";
import { Replication } from "./pages/replication.jsx";
import { Slow } from "./pages/slow.jsx";
import { Terminal } from "./pages/terminal.jsx";
import { Users } from "./pages/users.jsx";
import { lacks } from "./rights.js";
import { leave, route } from "./route.js";
import { begin, connect, lastUser, logout, update, useSession } from "./session.js";
import { Ask, CommandStrip, Field, Icon, Toasts } from "./ui.jsx";

/** The pages: address, title, component, and the command without which they have nothing to show. */
const PAGES = [
  ["overview", "Overview", Overview, ["INFO"]],
  ["keys", "Keys", Keys, ["SCAN"]],
  ["terminal", "Commands", Terminal, ["PING"]],
  ["slow", "Slow log", Slow, ["COMMANDLOG", "GET"]],
  ["clients", "Clients", Clients, ["CLIENT", "LIST"]],
  ["pubsub", "Pub/Sub", Pubsub, ["SUBSCRIBE"]],
  ["config", "Configuration", Config, ["CONFIG", "GET"]],
  ["replication", "Persistence", Replication, ["INFO"]],
  ["cluster", "Cluster", Cluster, ["CLUSTER", "STATUS"]],
  ["users", "Users", Users, ["ACL", "USERS"]],
];

function usePage() {
  const named = () => PAGES.find(([key]) => route().path === key) ?? PAGES[0];
  const [page, setPage] = useState(named);
  useEffect(() => {
    const moved = () =>
      setPage((before) => {
        const next = named();
        if (next !== before) {
          document.getElementById("main")?.focus({ preventScroll: true });
          scrollTo(0, 0);
        }
        return next;
      });
    addEventListener("hashchange", moved);
    // It may have changed before somebody listened.
    moved();
    return () => removeEventListener("hashchange", moved);
  }, []);
  return page;
}

const THEMES = ["system", "light", "dark"];

/** As the system has it, light, or dark; the next one. */
function useTheme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") || "system");
  useEffect(() => {
    if (theme === "system") {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("theme");
    } else {
      document.documentElement.dataset.theme = theme;
      localStorage.setItem("theme", theme);
    }
    dispatchEvent(new Event("theme"));
  }, [theme]);
  return [theme, () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])];
}

function Login() {
  const session = useSession();
  const [user, setUser] = useState(lastUser() || "default");
  const [password, setPassword] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Dunlin";
  }, []);
  return (
    <main class="login" id="main" tabIndex={-1}>
      <form
        class="card"
        onSubmit={async (event) => {
          event.preventDefault();
          setBusy(true);
          await connect({ user, password });
          setPassword("");
          setBusy(false);
        }}
      >
        <Mark />
        <h1>Dunlin</h1>
        <p class="quiet">{location.host}</p>
        <Field label="User" value={user} onInput={setUser} autocomplete="username" />
        <Field label="Password" type="password" value={password} onInput={setPassword} autocomplete="current-password" autofocus />
        {session.error && (
          <p class="problem" role="alert">
            {session.error}
          </p>
        )}
        <button type="submit" class="main" disabled={busy}>
          {busy ? "…" : "Log in"}
        </button>
        <p class="quiet">The console does what this user may do, and nothing else.</p>
      </form>
    </main>
  );
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <path d="M4 19c3 6 12 8 18 3 3-2.500 4-6 3.500-9.500L30 10l-5.500-.8C23.500 7 21.500 6 19.500 6.500c-3 .7-3.500 4-6 6.500-3 3-6.500 3-9.500 6Z" />
      <path d="M13 25v4M18 25v4" />
    </svg>
  );
}

function Console() {
  const session = useSession();
  const [key, title, Current] = usePage();
  const [more, setMore] = useState(false);
  const [theme, turnTheme] = useTheme();
  const isLost = session.state === "lost";
  useEffect(() => {
    document.title = `${title} · Dunlin`;
    setMore(false);
  }, [title]);
  const isBehindMore = PAGES.findIndex(([name]) => name === key) >= 4;
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>
        Skip to the content
      </a>
      <nav aria-label="Pages" class={more ? "more" : ""}>
        <div class="brand">
          <Mark />
          <span>
            Dunlin
            <small>{location.host}</small>
          </span>
        </div>
        <ul>
          {PAGES.map(([name, text, , needs]) => {
            const right = lacks(...needs);
            return (
              <li key={name}>
                <a href={`#/${name}`} class={right ? "grey" : ""} title={right ? `Your user lacks ${right}` : undefined} aria-current={name === key ? "page" : undefined} onClick={() => setMore(false)}>
                  <Icon name={name} />
                  <span>{text}</span>
                </a>
              </li>
            );
          })}
        </ul>
        <div class="foot">
          <span class="who" title="ACL WHOAMI">
            {session.user}
          </span>
          <button type="button" class="plain" onClick={turnTheme} aria-label={`Theme: ${theme}`} title={`Theme: ${theme}`}>
            <Icon name={theme} />
          </button>
          <button type="button" class="plain" onClick={() => leave(logout)} aria-label="Log out" title="Log out">
            <Icon name="out" />
          </button>
        </div>
        <button type="button" class={`plain open-more ${isBehindMore ? "current" : ""}`} aria-expanded={more} onClick={() => setMore(!more)}>
          <Icon name={isBehindMore ? key : "more"} />
          <span>{isBehindMore ? title : "More"}</span>
        </button>
      </nav>
      <main id="main" tabIndex={-1}>
        {isLost && (
          <p class="problem lost" role="alert">
            The server cannot be reached. All figures are of {date(session.heard)}. Trying again…
          </p>
        )}
        <div class={isLost ? "stale" : ""}>
          <Current />
        </div>
        <p class="zone quiet">All times are UTC, as in the server log.</p>
      </main>
      <CommandStrip />
      <Toasts />
      {session.leaving && (
        <Ask title="Leave without saving?" yes="Leave" onYes={session.leaving.yes} onNo={() => update({ leaving: null })}>
          <p>Not saved: {session.leaving.what}.</p>
        </Ask>
      )}
    </div>
  );
}

function App() {
  const session = useSession();
  useEffect(begin, []);
  if (session.state === "connecting") return <p class="connecting" role="status">Connecting…</p>;
  if (session.state === "login") return <Login />;
  return <Console />;
}

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
render(<App />, document.getElementById("app"));
