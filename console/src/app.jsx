// The console: a page that speaks the server's own protocol, with the rights of the user who logs in.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
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
import { connect, logout, useSession } from "./session.js";
import { CommandStrip, Field, Icon, Toasts } from "./ui.jsx";

const PAGES = [
  ["overview", "Overview", Overview],
  ["keys", "Keys", Keys],
  ["terminal", "Commands", Terminal],
  ["slow", "Slow log", Slow],
  ["clients", "Clients", Clients],
  ["pubsub", "Pub/Sub", Pubsub],
  ["config", "Configuration", Config],
  ["replication", "Persistence", Replication],
  ["cluster", "Cluster", Cluster],
  ["users", "Users", Users],
];

function usePage() {
  const named = () => PAGES.find(([key]) => location.hash === `#/${key}`) ?? PAGES[0];
  const [page, setPage] = useState(named);
  useEffect(() => {
    const moved = () => {
      setPage(named());
      document.getElementById("main")?.focus({ preventScroll: true });
      scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    // It may have changed before somebody listened.
    setPage(named());
    return () => removeEventListener("hashchange", moved);
  }, []);
  return page;
}

/** Light, dark, or as the system has it. */
function useTheme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") ?? "");
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem("theme", theme);
    dispatchEvent(new Event("theme"));
  }, [theme]);
  const isDark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return () => setTheme(isDark ? "light" : "dark");
}

function Login() {
  const session = useSession();
  const [user, setUser] = useState("default");
  const [password, setPassword] = useState("");
  const [busy, setBusy] = useState(false);
  return (
    <main class="login" id="main" tabIndex={-1}>
      <form
        class="card"
        onSubmit={async (event) => {
          event.preventDefault();
          setBusy(true);
          await connect({ user, password });
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
  const turnTheme = useTheme();
  useEffect(() => {
    document.title = `${title} · Dunlin`;
    setMore(false);
  }, [title]);
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>
        Skip to the content
      </a>
      <nav aria-label="Pages" class={more ? "more" : ""}>
        <div class="brand">
          <Mark />
          <span>Dunlin</span>
        </div>
        <ul>
          {PAGES.map(([name, text]) => (
            <li key={name}>
              <a href={`#/${name}`} aria-current={name === key ? "page" : undefined}>
                <Icon name={name} />
                <span>{text}</span>
              </a>
            </li>
          ))}
        </ul>
        <div class="foot">
          <span class="who" title="ACL WHOAMI">
            {session.user}
          </span>
          <button type="button" class="plain" onClick={turnTheme} aria-label="Light or dark">
            <Icon name="theme" />
          </button>
          <button type="button" class="plain" onClick={logout} aria-label="Log out">
            <Icon name="out" />
          </button>
        </div>
        <button type="button" class="plain open-more" aria-expanded={more} onClick={() => setMore(!more)}>
          <Icon name="more" />
          <span>More</span>
        </button>
      </nav>
      <main id="main" tabIndex={-1}>
        {session.state === "lost" && (
          <p class="problem" role="alert">
            The connection was lost. Trying again…
          </p>
        )}
        <Current />
      </main>
      <CommandStrip />
      <Toasts />
    </div>
  );
}

function App() {
  const session = useSession();
  useEffect(() => {
    connect();
  }, []);
  if (session.state === "connecting") return <p class="connecting" role="status">Connecting…</p>;
  if (session.state === "login") return <Login />;
  return <Console />;
}

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
render(<App />, document.getElementById("app"));
