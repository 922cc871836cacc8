//! Limits on what a replica may use.

use blackstart_sdk::fault::{Fill, Limit};
use blackstart_sdk::testing::{SECOND, Sent};

use super::{another_process, config_errors, judge, named, read, same_process};

const MIB: u64 = 1 << 20;

#[test]
fn each_asks_for_its_limit() {
    let fill = Fill {
        path: "/data".to_owned(),
        leave_bytes: 3 * MIB,
    };
    for (name, config, limit) in [
        ("cgroup-freeze", r#"{"duration_ms":3000}"#, Limit::Freeze),
        (
            "cpu-throttle",
            r#"{"percent":250,"duration_ms":3000}"#,
            Limit::CpuPercent(250),
        ),
        (
            "memory-limit",
            r#"{"headroom_mib":8,"duration_ms":3000}"#,
            Limit::MemoryHeadroomBytes(8 * MIB),
        ),
        (
            "disk-full",
            r#"{"path":"/data","leave_mib":3,"duration_ms":3000}"#,
            Limit::FillDisk(fill),
        ),
    ] {
        let (_, host) = named(name).armed(config);
        let (replica, sent, when) = &host.others[0];
        assert_eq!(
            (replica.as_str(), sent),
            ("vllm-0", &Sent::Limit(limit)),
            "{name}"
        );
        assert_eq!(
            (when.at, when.until),
            (20 * SECOND, Some(23 * SECOND)),
            "{name}"
        );
    }
}

#[test]
fn frozen_and_thawed_is_proven() {
    let (live, _) = named("cgroup-freeze").armed("{}");
    let frozen = |values| vec![read("cgroup.frozen", values)];
    judge(
        live.as_ref(),
        &same_process(),
        &[
            ("happened", frozen(["0", "1", "0"])),
            ("not", frozen(["0", "0", "0"])),
            ("not", frozen(["1", "1", "1"])),
            ("not", frozen(["0", "1", "1"])),
            ("unknown", frozen(["0", "?", "0"])),
            ("unknown", frozen(["0", "1", "?"])),
            ("unknown", frozen(["?", "1", "0"])),
            ("unknown", vec![]),
        ],
    );
    judge(live.as_ref(), &[], &[("unknown", frozen(["0", "1", "0"]))]);
    judge(
        live.as_ref(),
        &another_process("vllm-0"),
        &[("not", frozen(["0", "1", "0"]))],
    );
}

#[test]
fn a_quota_that_is_reached_is_the_proof() {
    let (live, _) = named("cpu-throttle").armed(r#"{"percent":20}"#);
    let quota = |values, periods| {
        vec![
            read("cgroup.cpu-quota-percent", values),
            read("cgroup.throttled-periods", periods),
        ]
    };
    let grew = ["3", "40", "80"];
    judge(
        live.as_ref(),
        &same_process(),
        &[
            ("happened", quota(["max", "20", "max"], grew)),
            ("happened", quota(["100", "19", "100"], ["0", "0", "1"])),
            ("not", quota(["max", "20", "max"], ["3", "3", "3"])),
            ("not", quota(["max", "50", "max"], grew)),
            ("not", quota(["max", "max", "max"], grew)),
            ("not", quota(["20", "20", "20"], grew)),
            ("unknown", quota(["max", "?", "max"], grew)),
            ("unknown", quota(["?", "20", "max"], grew)),
            ("unknown", quota(["max", "20", "max"], ["?", "40", "80"])),
            ("unknown", quota(["max", "20", "max"], ["3", "3", "?"])),
            ("unknown", vec![]),
        ],
    );
    let good = quota(["max", "20", "max"], grew);
    judge(live.as_ref(), &another_process("vllm-0"), &[("not", good)]);
}

#[test]
fn a_kill_for_want_of_memory_must_have_hit_the_server() {
    let (live, _) = named("memory-limit").armed("{}");
    let kills = |values| vec![read("cgroup.oom-kills", values)];
    let engine = |values| vec![read("container.oom-killed", values)];
    let anew = another_process("vllm-0");
    judge(
        live.as_ref(),
        &anew,
        &[
            ("happened", kills(["0", "1", "1"])),
            ("happened", kills(["4", "?", "5"])),
            ("happened", engine(["false", "true", "false"])),
            ("happened", engine(["false", "?", "true"])),
            ("not", kills(["4", "4", "4"])),
            // Of an earlier life.
            ("unknown", engine(["true", "true", "true"])),
            ("unknown", engine(["false", "false", "false"])),
            ("unknown", kills(["?", "1", "1"])),
            ("unknown", kills(["0", "?", "?"])),
            // It died, but nobody says of what.
            ("unknown", vec![]),
        ],
    );
    // Someone else in the group, such as the helper, was killed.
    judge(
        live.as_ref(),
        &same_process(),
        &[("not", kills(["0", "1", "1"]))],
    );
    judge(live.as_ref(), &[], &[("unknown", kills(["0", "1", "1"]))]);
}

#[test]
fn a_file_system_that_is_as_full_as_asked_is_the_proof() {
    let (live, _) = named("disk-full").armed(r#"{"path":"/data","leave_mib":10}"#);
    let left = |values: [u64; 3]| {
        let [a, b, c] = values.map(|mib| (mib * MIB).to_string());
        vec![read("disk.available-bytes", [&a, &b, &c])]
    };
    judge(
        live.as_ref(),
        &[],
        &[
            ("happened", left([500, 10, 500])),
            ("happened", left([500, 11, 490])),
            ("happened", left([500, 0, 500])),
            ("not", left([500, 12, 500])),
            ("not", left([500, 500, 500])),
            // It was full before.
            ("not", left([10, 10, 10])),
            (
                "unknown",
                vec![read("disk.available-bytes", ["?", "0", "9"])],
            ),
            (
                "unknown",
                vec![read("disk.available-bytes", ["99999999", "?", "9"])],
            ),
            ("unknown", vec![]),
        ],
    );
}

#[test]
fn a_path_must_be_absolute_and_may_not_climb() {
    let parse = named("disk-full").parse;
    for path in ["data", "/data/../etc", "", "/a\\u0000b"] {
        let errors = config_errors(parse(&format!(r#"{{"path":"{path}"}}"#)));
        assert_eq!(errors[0].path, "path", "{path}");
        assert!(errors[0].help.is_some());
    }
    assert!(parse(r#"{"path":"/data..old"}"#).is_ok());
    assert!(parse("{}").is_err());
}
