//! Bad input gets one clear error: what, where, how to mend it, and the exit code of its kind.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use blackstart_testkit::{CampaignText, Finished, Instrument, free_port};

/// A kill campaign on a port where nothing listens.
fn campaign() -> CampaignText {
    let mut campaign = CampaignText::new("errors", free_port())
        .process_fault("process-kill", "signal = \"KILL\"\nprocess = \"api\"");
    campaign.mock = vec!["--startup-scale".to_owned(), "0.02".to_owned()];
    campaign
}

/// Runs a campaign file that must fail: with one error and a way to mend it, and nothing left behind.
fn fail(instrument: &Instrument, text: &str, more: &[&str]) -> Finished {
    let file = instrument.write("campaign.toml", text);
    let mut args = vec!["run", file.to_str().unwrap()];
    if !more.contains(&"--out") {
        args.extend(["--out", "results"]);
    }
    args.extend(more);
    let finished = instrument.run(args);
    instrument.expect_nothing_left(common::GONE_WITHIN);
    assert!(
        finished.stdout.is_empty(),
        "an error on stdout: {}",
        finished.stdout
    );
    let errors = finished
        .stderr
        .lines()
        .filter(|l| l.starts_with("error"))
        .count();
    assert_eq!(errors, 1, "one error, not {errors}:\n{}", finished.stderr);
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("help: ") || finished.stderr.contains("; "),
        "no way to mend it:\n{}",
        finished.stderr
    );
    finished
}

/// Line and column, from 1, of the text `what` in a file.
fn place(text: &str, what: &str) -> String {
    let at = text
        .find(what)
        .unwrap_or_else(|| panic!("the file has no {what}"));
    let line = text[..at].matches('\n').count() + 1;
    let column = at - text[..at].rfind('\n').map_or(0, |n| n + 1) + 1;
    format!("campaign.toml:{line}:{column}")
}

/// Checks that an error that was found late still points at what named the target.
#[track_caller]
fn placed(finished: &Finished, text: &str, what: &str) {
    let place = place(text, what);
    assert!(
        finished.stderr.contains(&place),
        "not at {place}:\n{}",
        finished.stderr
    );
}

/// Checks code, place and words of a mistake in the file. Nothing may have been written.
#[track_caller]
fn expect(text: &str, code: i32, at: &str, words: &[&str]) {
    let instrument = common::instrument();
    let finished = fail(&instrument, text, &[]);
    finished.expect_code(code);
    let place = place(text, at);
    assert!(
        finished.stderr.contains(&place),
        "not at {place}:\n{}",
        finished.stderr
    );
    for word in words {
        assert!(
            finished.stderr.contains(word),
            "no {word:?} in:\n{}",
            finished.stderr
        );
    }
    assert!(
        !instrument.path("results").exists(),
        "a mistake in the file wrote results"
    );
}

#[test]
fn an_unknown_key_is_named_with_its_likely_meaning() {
    let text = campaign().text().replace("warmup = ", "warm_up = ");
    expect(&text, 3, "warm_up", &["warm_up", "did you mean `warmup`?"]);
}

#[test]
fn a_wrong_type_and_a_file_that_is_no_toml_have_a_place() {
    for (right, wrong, at) in [
        ("rate = 15.5", "rate = \"fast\"", "\"fast\""),
        ("rate = 15.5", "rate = = 15.5", "= 15.5"),
        ("\"1500ms\"", "\"5 parsecs\"", "\"5 parsecs\""),
    ] {
        let text = campaign().text().replace(right, wrong);
        let instrument = common::instrument();
        let finished = fail(&instrument, &text, &[]);
        finished.expect_code(3);
        let place = place(&text, at);
        assert!(
            finished.stderr.contains(&place),
            "{wrong}: not at {place}:\n{}",
            finished.stderr
        );
    }
}

#[test]
fn a_missing_plugin_is_named_with_those_there_are() {
    let text = campaign().text().replace("process-kill", "process-killl");
    expect(
        &text,
        4,
        "\"process-killl\"",
        &["no plugin is named `process-killl`", "process-kill"],
    );
}

#[test]
fn a_capability_that_is_not_granted_is_refused_with_the_grant_to_add() {
    let text = campaign()
        .text()
        .replace("[fault.grant]\nprocess = [\"r0\"]", "[fault.grant]");
    expect(
        &text,
        4,
        "grant]",
        &[
            "effect-process",
            "does not grant",
            "[fault.grant]",
            "process = [\"r0\"]",
        ],
    );
    // Granted for another replica only: the single effect is refused.
    let text = campaign().text().replace(
        "[fault.grant]\nprocess = [\"r0\"]",
        "[fault.grant]\nprocess = [\"r7\"]",
    );
    let instrument = common::instrument();
    let finished = fail(&instrument, &text, &[]);
    finished.expect_code(4);
    assert!(
        finished.stderr.contains("r0") && finished.stderr.contains("not granted"),
        "{}",
        finished.stderr
    );
    assert!(
        finished.stderr.contains("campaign.toml:"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_plugins_own_value_is_checked_at_its_place() {
    let text = campaign().text().replace("\"KILL\"", "\"STOPP\"");
    let words = ["`signal` is \"STOPP\"", "one of: ", "\"KILL\"", "\"TERM\""];
    expect(&text, 3, "\"STOPP\"", &words);
    let text = campaign().text().replace("\"KILL\"", "\"KIL\"");
    expect(&text, 3, "\"KIL\"", &["did you mean \"KILL\"?"]);
    let text = campaign().text().replace("signal = ", "signall = ");
    let words = [
        "unknown key `signall`",
        "did you mean `signal`?",
        "`process`",
    ];
    expect(&text, 3, "signall", &words);
}

#[test]
fn a_victim_that_does_not_exist_is_found_before_anything_starts() {
    let text = campaign()
        .text()
        .replace("process = \"api\"", "process = \"nobody\"");
    expect(
        &text,
        3,
        "\"nobody\"",
        &["no process `nobody`", "api, engine, worker"],
    );
    let text = campaign()
        .text()
        .replace("victims = [\"r0\"]", "victims = [\"r9\"]");
    expect(&text, 3, "\"r9\"", &["no replica is called `r9`", "`r0`"]);
}

#[test]
fn a_role_that_no_process_has_is_found_before_the_load_starts() {
    let _turn = common::turn();
    let text = campaign()
        .text()
        .replace("process = \"api\"", "process = \"worker\"");
    let instrument = common::instrument();
    let finished = fail(&instrument, &text, &[]);
    finished.expect_code(5);
    placed(&finished, &text, "[[target.replica]]");
    for word in [
        "victim not found",
        "r0",
        "worker",
        "VLLM::Worker",
        "contains",
    ] {
        assert!(
            finished.stderr.contains(word),
            "no {word:?} in:\n{}",
            finished.stderr
        );
    }
}

#[test]
fn a_port_in_use_names_its_holder() {
    let _turn = common::turn();
    let campaign = campaign();
    let held = TcpListener::bind(("127.0.0.1", campaign.port)).unwrap();
    let instrument = common::instrument();
    let finished = fail(&instrument, &campaign.text(), &[]);
    finished.expect_code(5);
    placed(&finished, &campaign.text(), "\"http://127.0.0.1");
    let (port, holder) = (
        campaign.port.to_string(),
        format!("pid {}", std::process::id()),
    );
    for word in [
        port.as_str(),
        "already in use",
        holder.as_str(),
        "choose another port",
    ] {
        assert!(
            finished.stderr.contains(word),
            "no {word:?} in:\n{}",
            finished.stderr
        );
    }
    drop(held);
}

#[test]
fn a_running_target_that_does_not_answer_is_not_waited_for_for_ever() {
    let _turn = common::turn();
    let port = free_port();
    let text = CampaignText::new("errors", port).text();
    // A running replica, which nobody has started.
    let from = text.find("[target.replica.process]").unwrap();
    let to = text.find("[observe]").unwrap();
    let text = format!(
        "{}[target.replica.running]\n\n{}",
        &text[..from],
        &text[to..]
    );
    let instrument = common::instrument();
    let finished = fail(&instrument, &text, &[]);
    finished.expect_code(5);
    placed(&finished, &text, "\"http://127.0.0.1");
    let address = format!("http://127.0.0.1:{port}");
    for word in [
        "r0",
        address.as_str(),
        "did not answer with a token within 20 s (",
        "check that the server was started",
    ] {
        assert!(
            finished.stderr.contains(word),
            "no {word:?} in:\n{}",
            finished.stderr
        );
    }
}

#[test]
fn a_model_that_the_server_does_not_serve_is_mended_at_the_model() {
    let _turn = common::turn();
    let text = campaign()
        .text()
        .replace("model = \"mock\"", "model = \"mok\"");
    let instrument = common::instrument();
    let finished = fail(&instrument, &text, &[]);
    finished.expect_code(5);
    placed(&finished, &text, "\"mok\"");
    for word in [
        "refused 5 requests in a row",
        "does not serve model `mok` but `mock`: set load.model",
        "server-r0.log",
    ] {
        assert!(
            finished.stderr.contains(word),
            "no {word:?} in:\n{}",
            finished.stderr
        );
    }
    assert!(
        !finished.stderr.contains("within 0 s"),
        "{}",
        finished.stderr
    );
    // The report says it too.
    let results = common::only_results(&instrument);
    let report = common::json(&results.join("report.json"));
    let first = report["caveats"][0].as_str().unwrap();
    assert!(
        first.contains("run 1: ") && first.contains("refused 5 requests in a row"),
        "{first}"
    );
    let page = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(page.contains("refused 5 requests in a row"));
    let verified = instrument.run(["verify", results.to_str().unwrap()]);
    verified.expect_code(0);
}

#[test]
fn a_signal_without_a_process_to_send_it_to_is_refused_before_anything_starts() {
    let text = campaign().text();
    let from = text.find("[target.replica.process]").unwrap();
    let to = text.find("[fault]").unwrap();
    let text = format!(
        "{}[target.replica.running]\n\n{}",
        &text[..from],
        &text[to..]
    );
    let instrument = common::instrument();
    let finished = fail(&instrument, &text, &["--dry-run"]);
    finished.expect_code(3);
    placed(&finished, &text, "running]");
    for word in ["`r0`", "nothing says which process", "command_match"] {
        assert!(
            finished.stderr.contains(word),
            "no {word:?} in:\n{}",
            finished.stderr
        );
    }
}

#[test]
fn a_pid_that_nobody_has_is_found_before_anything_starts() {
    // Above the largest pid that the kernel gives.
    const NOBODY: &str = "4194999";
    let text = CampaignText::new("errors", free_port()).text();
    let from = text.find("[target.replica.process]").unwrap();
    let to = text.find("[observe]").unwrap();
    let text = format!(
        "{}[target.replica.running]\npid = {NOBODY}\n\n{}",
        &text[..from],
        &text[to..]
    );
    let instrument = common::instrument();
    let finished = fail(&instrument, &text, &["--dry-run"]);
    finished.expect_code(5);
    placed(&finished, &text, NOBODY);
    assert!(
        finished
            .stderr
            .contains(&format!("no process has pid {NOBODY}")),
        "{}",
        finished.stderr
    );
    assert!(!instrument.path("results").exists());
}

#[test]
fn a_hold_shorter_than_a_probe_may_take_is_warned_of() {
    let text = campaign()
        .text()
        .replace("probe_timeout = \"1s\"", "probe_timeout = \"3s\"");
    let instrument = common::instrument();
    let file = instrument.write("campaign.toml", &text);
    let finished = instrument.run(["run", file.to_str().unwrap(), "--dry-run"]);
    finished.expect_code(0);
    assert!(
        finished
            .stderr
            .contains("warning: the hold of 2s is shorter")
            && finished.stderr.contains("help: "),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let _turn = common::turn();
    let text = campaign()
        .text()
        .replace("\"${blackstart}\", ", "\"no-such-server\", ");
    let instrument = common::instrument();
    let finished = fail(&instrument, &text, &[]);
    finished.expect_code(5);
    placed(&finished, &text, "[\"no-such-server\"");
    assert!(
        finished.stderr.contains("no-such-server"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_server_that_ends_for_good_while_it_starts_is_not_waited_for() {
    let _turn = common::turn();
    let mut campaign = campaign();
    campaign.restart = "no";
    let text = campaign.text().replace(
        "\"${blackstart}\", ",
        // Its last line counts, behind any amount of text, in any encoding.
        "\"/bin/sh\", \"-c\", \"printf '\\\\377x'; yes filler | head -c 3000000; echo; echo no licence; exit 3\", ",
    );
    let instrument = common::instrument();
    let finished = fail(&instrument, &text, &[]);
    finished.expect_code(5);
    for word in ["r0", "exit code 3", "no licence", "server-r0.log"] {
        assert!(
            finished.stderr.contains(word),
            "no {word:?} in:\n{}",
            finished.stderr
        );
    }
}

#[test]
fn a_results_folder_that_cannot_be_written_is_named_with_the_option() {
    let instrument = common::instrument();
    // A file in the way stops root too, whom no permission stops.
    instrument.write("in-the-way", "");
    let finished = fail(
        &instrument,
        &campaign().text(),
        &["--out", "in-the-way/results"],
    );
    finished.expect_code(3);
    assert!(
        finished
            .stderr
            .contains("in-the-way/results is not writable"),
        "{}",
        finished.stderr
    );
    assert!(finished.stderr.contains("--out"), "{}", finished.stderr);

    let folder = instrument.path("read-only");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    if std::fs::write(folder.join("probe"), "").is_ok() {
        println!("skipped: read_only_folder: this user may write everywhere");
        return;
    }
    let finished = fail(&instrument, &campaign().text(), &["--out", "read-only"]);
    finished.expect_code(3);
    assert!(
        finished.stderr.contains("read-only is not writable"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_missing_api_key_names_its_variable_and_nothing_was_started() {
    const VARIABLE: &str = "BLACKSTART_TEST_KEY_THAT_IS_NOT_SET";
    let mut campaign = campaign();
    campaign.load = format!("api_key_env = \"{VARIABLE}\"\n");
    let instrument = common::instrument();
    let finished = fail(&instrument, &campaign.text(), &[]);
    finished.expect_code(3);
    assert!(finished.stderr.contains(VARIABLE), "{}", finished.stderr);
    assert!(
        finished.stderr.contains(&format!("export {VARIABLE}=")),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_secret_in_the_file_is_refused_and_never_shown() {
    const SECRET: &str = "sk-do-not-print-me";
    for (key, value) in [
        ("authorization", format!("Bearer {SECRET}")),
        ("x-api-key", SECRET.to_owned()),
    ] {
        let mut campaign = campaign();
        campaign.load = format!("\n[load.headers]\n{key} = \"{value}\"\n");
        let instrument = common::instrument();
        let finished = fail(&instrument, &campaign.text(), &[]);
        finished.expect_code(3);
        assert!(
            finished.stderr.contains("api_key_env"),
            "{}",
            finished.stderr
        );
        assert!(
            !finished.stderr.contains(SECRET),
            "printed:\n{}",
            finished.stderr
        );
    }
    let text = campaign().text().replace(
        "http://127.0.0.1",
        &format!("http://user:{SECRET}@127.0.0.1"),
    );
    let instrument = common::instrument();
    let finished = fail(&instrument, &text, &[]);
    finished.expect_code(3);
    assert!(
        !finished.stderr.contains(SECRET),
        "printed:\n{}",
        finished.stderr
    );
}

#[test]
fn a_secret_of_the_environment_reaches_no_file_and_no_output() {
    const VARIABLE: &str = "BLACKSTART_TEST_KEY";
    const SECRET: &str = "sk-stays-in-the-environment";
    let _turn = common::turn();
    let mut campaign = campaign();
    campaign.phases = ["0s", "2s", "2s", "0s"];
    campaign.load = format!("api_key_env = \"{VARIABLE}\"\n");
    campaign.fault = String::new();
    let instrument = common::instrument();
    let mut command = instrument.command(common::arguments(&instrument, &campaign));
    command.env(VARIABLE, SECRET);
    let finished = instrument.start_command(command).finish();
    let results = finished.results();
    assert!(!finished.stderr.contains(SECRET) && !finished.stdout.contains(SECRET));
    let mut files = 0;
    for folder in [results.clone(), common::run_dir(&results, 1)] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                files += 1;
                let bytes = std::fs::read(&path).unwrap();
                let holds = bytes.windows(SECRET.len()).any(|w| w == SECRET.as_bytes());
                assert!(!holds, "{} holds the key", path.display());
            }
        }
    }
    assert!(files > 10, "only {files} files looked at");
}

#[test]
fn a_mistake_on_the_command_line_is_a_mistake_of_configuration() {
    let instrument = common::instrument();
    for args in [
        &["run"][..],
        &["run", "a.toml", "--no-such-option"],
        &["no-such-command"],
    ] {
        instrument.run(args).expect_code(3);
    }
    let finished = instrument.run(["run", "missing.toml"]);
    finished.expect_code(3);
    assert!(
        finished.stderr.contains("missing.toml"),
        "{}",
        finished.stderr
    );
    instrument.run(["--help"]).expect_code(0);
    instrument.run(["--version"]).expect_code(0);
}
