//! The server as a process.

use std::time::{Duration, Instant};

use super::{
    REDIS_VERSION, Reading,
    metric::{AddLine, Family, Metric, Number, Row, Shown, Texts, Unit},
};
use crate::{
    config::{Config, announced_modules},
    system::host,
};

pub(super) const ROWS: &[Row] = &[
    Row::One(Metric::text(
        "redis_version",
        "The newest version of Redis of which everything is there that clients choose by version.",
        |_| REDIS_VERSION.into(),
    )),
    Row::One(Metric::always("server_name", "dunlin", "The name of this server.")),
    Row::One(Metric::always("dunlin_version", env!("CARGO_PKG_VERSION"), "The version of this server.")),
    Row::One(Metric::always("redis_git_sha1", "00000000", "A commit of Redis: none here.")),
    Row::One(Metric::none("redis_git_dirty", "Changes to a commit of Redis: none here.")),
    Row::One(Metric::none("redis_build_id", "A build of Redis: none here.")),
    Row::One(Metric::text("redis_mode", "`cluster` of a node of a cluster, or `standalone`.", |reading| {
        if reading.shared.cluster.is_on() { "cluster" } else { "standalone" }.into()
    })),
    Row::One(Metric::text("os", "System, release and machine.", |reading| {
        reading.shared.stats.process.system.as_str().into()
    })),
    Row::One(Metric::gauge("arch_bits", Unit::Count, "Bits of an address.", |_| usize::BITS.into())),
    Row::One(Metric::always("monotonic_clock", "POSIX clock_gettime", "The clock that measures durations.")),
    Row::One(Metric::always(
        "multiplexing_api",
        if cfg!(target_os = "linux") { "epoll" } else { "kqueue" },
        "The interface of the system that announces ready sockets.",
    )),
    Row::One(Metric::gauge("process_id", Unit::Count, "The process.", |_| std::process::id().into())),
    Row::One(Metric::text(
        "process_supervised",
        "The supervisor that learns of readiness, or `no`.",
        |reading| {
            if reading.config.supervised.socket().is_some() { "systemd".into() } else { "no".into() }
        },
    )),
    Row::One(Metric::text("run_id", "A random name of this run of the server.", |reading| {
        reading.shared.stats.process.run_id.as_str().into()
    })),
    Row::One(Metric::gauge("tcp_port", Unit::Count, "The port for clients; 0 for none.", |reading| {
        reading.config.port.into()
    })),
    Row::One(Metric::gauge("server_time_usec", Unit::UnixMicroseconds, "The time now.", |_| {
        host::unix_us().into()
    })),
    Row::One(Metric::counter("uptime_in_seconds", Unit::Seconds, "Time since the start.", uptime_s)),
    Row::One(Metric::counter("uptime_in_days", Unit::Days, "The same in whole days.", |reading| {
        uptime_s(reading) / 86_400
    })),
    Row::One(Metric::gauge(
        "hz",
        Unit::PerSecond,
        "How often work in the background is looked at.",
        |reading| reading.config.hz.into(),
    )),
    Row::One(Metric::gauge("configured_hz", Unit::PerSecond, "The directive `hz`.", |reading| {
        reading.config.hz.into()
    })),
    Row::One(Metric::gauge(
        "lru_clock",
        Unit::Seconds,
        "The clock of `OBJECT IDLETIME`, in 24 bits.",
        |reading| ((reading.now_ms / 1000) & 0xff_ffff).into(),
    )),
    Row::One(Metric::text("executable", "The path of the program.", |reading| {
        reading.shared.stats.process.executable.to_string_lossy()
    })),
    Row::One(Metric::text("config_file", "The path of the configuration file, or nothing.", |reading| {
        reading.shared.config.file().unwrap_or_default().to_string_lossy().into_owned().into()
    })),
    Row::One(Metric::none("io_threads_active", "Threads that only read and write: none, each worker does.")),
    Row::One(
        Metric::gauge(
            "shutdown_in_milliseconds",
            Unit::Milliseconds,
            "Time that replicas have left to catch up before the server ends.",
            |reading| {
                let left = reading.shared.shutdown.left(Instant::now());
                left.map_or(0, |left| left.as_millis()).into()
            },
        )
        .shown(Shown::WhileShuttingDown),
    ),
    Row::One(Metric::gauge("worker_threads", Unit::Count, "Threads that execute commands.", |reading| {
        reading.shared.workers.into()
    })),
    Row::Texts(Texts {
        name: "listener<n>",
        summary: "Each way in: 0 for TCP, 1 for the Unix socket, 2 for TLS, with its addresses and its port.",
        read: |reading, add| add_listeners(reading.config, add),
    }),
];

/// Adds the lines of `listener<n>`, numbered by their kind as in Redis 7.2.
fn add_listeners(config: &Config, add: AddLine<'_>) {
    let bind: String = config.bind.iter().map(|address| format!(",bind={address}")).collect();
    if config.port != 0 {
        add(&format!("listener0:name=tcp{bind},port={}", config.port));
    }
    if !config.unixsocket.as_os_str().is_empty() {
        add(&format!("listener1:name=unix,bind={}", config.unixsocket.display()));
    }
    if config.tls_port != 0 {
        add(&format!("listener2:name=tls{bind},port={}", config.tls_port));
    }
}

fn uptime_s(reading: &Reading<'_>) -> u64 {
    reading.shared.stats.process.uptime().as_secs()
}

pub(super) const MODULES_ROWS: &[Row] = &[Row::Texts(Texts {
    name: "module",
    summary: "Each module of Redis whose commands are there, as Redis Stack 7.4 shows it.",
    read: |reading, add| {
        for module in announced_modules(&reading.shared.commands) {
            add(&format!(
                "module:name={},ver={},api=1,filters=0,usedby=[],using=[],options=[handle-io-errors]",
                module.name, module.version
            ));
        }
    },
})];

pub(super) const PROCESSOR_ROWS: &[Row] = &[
    Row::One(Metric::gauge(
        "used_cpu_sys",
        Unit::Seconds,
        "Processor time of the process in the kernel.",
        |reading| seconds(reading.processor().system),
    )),
    Row::One(Metric::gauge(
        "used_cpu_user",
        Unit::Seconds,
        "Processor time of the process outside it.",
        |reading| seconds(reading.processor().user),
    )),
    Row::One(Metric::always("used_cpu_sys_children", "0.000000", "Of child processes: there are none.")),
    Row::One(Metric::always("used_cpu_user_children", "0.000000", "Of child processes: there are none.")),
    // There is no main thread that executes commands; the first worker is the nearest to it.
    Row::One(Metric::gauge(
        "used_cpu_sys_main_thread",
        Unit::Seconds,
        "Processor time of the first worker in the kernel.",
        |reading| of_worker(reading, 0)[0],
    )),
    Row::One(Metric::gauge(
        "used_cpu_user_main_thread",
        Unit::Seconds,
        "Processor time of the first worker outside it.",
        |reading| of_worker(reading, 0)[1],
    )),
    Row::Each(Family {
        prefix: "used_cpu_worker_",
        label: "worker",
        summary: "Processor time of each worker, by its number.",
        fields: &[("sys", Unit::Seconds, "In the kernel."), ("user", Unit::Seconds, "Outside it.")],
        read: |reading, line| {
            for index in 0..reading.shared.workers {
                let [system, user] = of_worker(reading, index);
                line(&index, &[("sys", system), ("user", user)]);
            }
        },
    }),
];

/// Processor time of a worker, in the kernel and outside it.
fn of_worker(reading: &Reading<'_>, index: usize) -> [Number; 2] {
    let worker = &reading.shared.stats.workers[index];
    [&worker.system_us, &worker.user_us].map(|counter| seconds(Duration::from_micros(counter.get())))
}

fn seconds(time: Duration) -> Number {
    Number::Decimal(time.as_secs_f64(), 6)
}
