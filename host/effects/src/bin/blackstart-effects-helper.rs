//! Helper for this crate's tests: the instrument's helper processes, as the command-line tool
//! exposes them, and a small instrument that can be killed.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("__supervise") => blackstart_targets::supervisor::run(None),
        Some("__watchdog") => blackstart_effects::watchdog::run(),
        Some("__balloon") => {
            let dir = PathBuf::from(std::env::args().nth(2).unwrap_or_default());
            blackstart_effects::run_balloon(&dir)
        }
        Some("ticks") => ticks(&std::env::args().nth(2).unwrap_or_default()),
        Some("hold") => hold(),
        Some("instrument") => instrument::main(std::env::args().skip(2).map(PathBuf::from)),
        _ => {
            eprintln!("this program serves the tests of blackstart-effects only");
            ExitCode::FAILURE
        }
    }
}

/// A server that writes a line to each client every 10 ms.
fn ticks(address: &str) -> ExitCode {
    use std::io::Write;
    let Ok(listener) = std::net::TcpListener::bind(address) else {
        return ExitCode::FAILURE;
    };
    println!("ready");
    for mut stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            while stream.write_all(b"tick\n").is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        });
    }
    ExitCode::SUCCESS
}

/// Holds 64 MiB of memory, and works without pause.
fn hold() -> ExitCode {
    let mut memory = vec![1_u8; 64 << 20];
    println!("ready");
    let mut n = 0_usize;
    loop {
        n = (n + 4096) % memory.len();
        memory[n] = memory[n].wrapping_add(1);
    }
}

/// Launches the replicas of `plan.json`, freezes process `api` of the first one 50 ms from now
/// for an hour less a little, prints the steps, and waits to be killed.
mod instrument {
    use std::path::PathBuf;
    use std::process::ExitCode;
    use std::sync::Arc;

    use blackstart_clock::{NS_PER_MS, RunClock, monotonic_ns};
    use blackstart_effects::{
        Action, MAX_EFFECT_NS, Mode, Signal, Timeline, TimelineOptions, Watchdog,
    };
    use blackstart_targets::{Reexec, Targets};

    pub fn main(mut args: impl Iterator<Item = PathBuf>) -> ExitCode {
        let Some(dir) = args.next() else {
            return ExitCode::FAILURE;
        };
        match run(&dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        }
    }

    fn run(dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
        let plan: blackstart_plan::TargetPlan =
            serde_json::from_slice(&std::fs::read(dir.join("plan.json"))?)?;
        let clock = RunClock::with_epoch(monotonic_ns());
        let watchdog = Watchdog::spawn(&Reexec::watchdog(), &dir.join("undo.jsonl"))?;
        let print: blackstart_effects::EffectSink = Arc::new(|event| {
            if let Ok(line) = serde_json::to_string(&event) {
                println!("{line}");
            }
        });
        let targets = Arc::new(Targets::launch(
            &plan,
            dir,
            clock,
            &Reexec::supervisor(),
            print.clone(),
        )?);
        let timeline = Timeline::new(TimelineOptions {
            clock,
            targets,
            watchdog: Arc::new(watchdog),
            sink: print,
            notice: Arc::new(|_, _| {}),
            helper: None,
            mode: Mode::Real,
        })?;
        let first = plan.replicas.first().ok_or("no replica")?;
        let at = clock.now() + 50 * NS_PER_MS;
        let freeze = Action::Signal {
            replica: first.id.clone(),
            role: "api".to_owned(),
            signal: Signal::Stop,
        };
        timeline.schedule(freeze, at, Some(at + MAX_EFFECT_NS))?;
        // Ends when the test closes its pipe, should it not kill this process.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
        Ok(())
    }
}
