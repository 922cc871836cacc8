//! The page in a real browser: it opens from disk, draws its marks, logs nothing, fetches nothing.
//!
//! Needs Chromium; without one each test is reported as skipped by name, with the reason. A harness
//! of its own, since the standard one cannot say "skipped".

// A test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use blackstart_report::{CampaignReport, render_html};
use common::{PINNED, SMALL, Story, campaign};

/// Longest that a browser may take for one page, start included.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(120);

/// Name and body of a test.
type Test = (&'static str, fn(&Browser));

fn main() -> ExitCode {
    let tests: [Test; 3] = [
        ("pages_open_without_a_message_or_a_request", pages_open),
        ("a_page_that_misbehaves_is_noticed", misbehaviour_is_noticed),
        ("hostile_texts_do_nothing_in_a_browser", hostile_texts),
    ];
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let browser = Browser::find();
    println!("\nrunning {} browser tests", tests.len());
    for (name, test) in tests {
        if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(w.as_str())) {
            continue;
        }
        match &browser {
            Ok(browser) => {
                test(browser);
                println!("test {name} ... ok");
            }
            Err(reason) => println!("test {name} ... SKIPPED: {reason}"),
        }
    }
    ExitCode::SUCCESS
}

struct Browser {
    program: PathBuf,
}

/// What a browser did with a page.
struct Visit {
    dom: String,
    /// Lines that the page logged, policy violations among them.
    console: Vec<String>,
    /// Requests that the page asked the network for.
    requests: Vec<String>,
}

impl Browser {
    fn find() -> Result<Self, String> {
        let names = [
            "chromium",
            "chromium-browser",
            "google-chrome",
            "google-chrome-stable",
        ];
        let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .flat_map(|dir| names.map(|name| dir.join(name)))
            .find(|p| p.is_file());
        match named.or(found) {
            Some(program) => Ok(Self { program }),
            None => Err(format!(
                "no Chromium found: none of {} is on PATH, and CHROMIUM does not name one",
                names.join(", ")
            )),
        }
    }

    fn visit(&self, page: &Path) -> Visit {
        let profile = tempfile::tempdir().unwrap();
        let net_log = profile.path().join("net.json");
        let errors = profile.path().join("stderr");
        let dom = profile.path().join("dom");
        let mut child = Command::new(&self.program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
                "--enable-logging=stderr",
                "--dump-dom",
                "--virtual-time-budget=2000",
                // Whatever is asked for, nothing leaves this machine.
                "--host-resolver-rules=MAP * ~NOTFOUND",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--log-net-log={}", net_log.display()))
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&dom).unwrap())
            .stderr(std::fs::File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let tick = Duration::from_millis(100);
        let mut waited = Duration::ZERO;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if waited >= BROWSER_TIMEOUT {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("the browser did not end within {BROWSER_TIMEOUT:?}");
            }
            std::thread::sleep(tick);
            waited += tick;
        };
        let read = |path: &Path| {
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        let log = read(&errors);
        assert!(status.success(), "the browser failed: {log}");
        Visit {
            dom: read(&dom),
            console: log
                .lines()
                .filter(|l| l.contains("CONSOLE"))
                .map(str::to_owned)
                .collect(),
            requests: page_requests(&read(&net_log)),
        }
    }
}

/// Requests in a network log that a page made; those of the browser itself have no initiator.
fn page_requests(log: &str) -> Vec<String> {
    assert!(!log.is_empty(), "the browser wrote a network log");
    // The last line lacks its end where the browser was stopped.
    let log = log.trim_end().trim_end_matches(',');
    let json: serde_json::Value = serde_json::from_str(log)
        .or_else(|_| serde_json::from_str(&format!("{log}]}}")))
        .unwrap();
    let all = json["events"].as_array().unwrap();
    all.iter()
        .filter_map(|e| {
            let params = e.get("params")?;
            let initiator = params.get("initiator")?.as_str()?;
            let url = params.get("url")?.as_str()?;
            (initiator != "not an origin").then(|| url.to_owned())
        })
        .collect()
}

fn write(name: &str, page: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, page).unwrap();
    path
}

fn made(name: &str, report: &CampaignReport) -> PathBuf {
    let text = serde_json::to_string(report).unwrap();
    write(&name.replace(".html", ".json"), &text);
    write(name, &render_html(report).unwrap())
}

fn pages_open(browser: &Browser) {
    use Story::*;
    for (name, scale, stories) in [
        ("recovers.html", SMALL, &[Recovers, Recovers, Recovers][..]),
        (
            "mixed.html",
            SMALL,
            &[Recovers, NeverBack, GateFails, Control, Interrupted],
        ),
        ("no-fault.html", SMALL, &[NoFault]),
        ("pinned.html", PINNED, &[Recovers; 5]),
    ] {
        let report = campaign(scale, stories);
        let visit = browser.visit(&made(name, &report));
        assert_eq!(visit.console, [""; 0], "{name} logged");
        assert_eq!(visit.requests, [""; 0], "{name} asked for something");
        let marks = |what: &str| visit.dom.matches(what).count();
        // A wide and a narrow drawing for each run, and for each close-up.
        let close_ups = marks("<p class=\"close-up\">");
        let drawings = 2 * (stories.len() + close_ups);
        assert_eq!(close_ups > 0, scale.fault_s == PINNED.fault_s, "{name}");
        for mark in ["<path class=\"scheduled", "<path class=\"area good\" d=\"M"] {
            assert_eq!(marks(mark), drawings, "{name}: {mark}");
        }
        assert!(marks("<svg") > 2 * stories.len(), "{name}");
        assert!(
            visit.dom.contains("</footer>"),
            "{name} is parsed to its end"
        );
    }
}

/// The checks above can fail: a page with a script, an image and no policy is caught by them.
fn misbehaviour_is_noticed(browser: &Browser) {
    let page = write(
        "misbehaves.html",
        "<!doctype html><script>console.error('said')</script><img src='http://blackstart.invalid/x.png'>",
    );
    let visit = browser.visit(&page);
    assert!(
        visit.console.iter().any(|l| l.contains("said")),
        "{:?}",
        visit.console
    );
    assert!(
        visit
            .requests
            .iter()
            .any(|u| u.contains("blackstart.invalid")),
        "{:?}",
        visit.requests
    );
}

fn hostile_texts(browser: &Browser) {
    const EVIL: &str = "</style></title><script>console.error('ran')</script><img src='http://blackstart.invalid/x.png'>\" onmouseover=\"x";
    let mut report = campaign(SMALL, &[Story::Recovers]);
    report.campaign.config_name = EVIL.to_owned();
    report.campaign.statement = Some(EVIL.to_owned());
    report.caveats = vec![EVIL.to_owned()];
    report
        .provenance
        .load
        .insert("model".to_owned(), EVIL.to_owned());
    report.campaign.per_run[0].analysis.notes = vec![EVIL.to_owned()];
    let visit = browser.visit(&made("hostile.html", &report));
    assert_eq!(visit.console, [""; 0]);
    assert_eq!(visit.requests, [""; 0]);
    assert!(!visit.dom.contains("<img") && !visit.dom.contains("<script"));
}
