//! Makes the page of a finished campaign: `render REPORT.json PAGE.html`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        eprintln!("usage: render REPORT.json PAGE.html");
        return ExitCode::FAILURE;
    };
    let page = std::fs::read_to_string(&from)
        .map_err(|e| format!("{from}: {e}"))
        .and_then(|text| serde_json::from_str(&text).map_err(|e| format!("{from}: {e}")))
        .and_then(|report| blackstart_report::render_html(&report).map_err(|e| e.to_string()));
    match page.and_then(|p| std::fs::write(&to, p).map_err(|e| format!("{to}: {e}"))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
