//! Switches a failure mode of the mock server on at the fire instant and off at the end.

mod config;
#[cfg(test)]
mod tests;

use blackstart_sdk::config::invalid;
use blackstart_sdk::fault::{
    ArmContext, Armed, Ending, Fact, FaultDescription, FaultHost, FaultVariant, Proof, Replica,
    Request, fact, prove_all, victims,
};
use blackstart_sdk::{Error, Window, field};

use config::NS_PER_MS;
pub use config::{Config, Mode};

/// Attribute of a replica that says where its admin interface listens.
pub const ADMIN_URL: &str = "admin-url";

/// Path of the admin interface that takes `{"mode": ...}`.
pub const ADMIN_PATH: &str = "/admin/fault";

/// The armed fault.
#[derive(Debug)]
pub struct MockFault {
    victims: Vec<String>,
    mode: Mode,
}

blackstart_sdk::register!(fault: MockFault);

impl FaultVariant for MockFault {
    type Config = Config;

    fn describe() -> FaultDescription {
        FaultDescription {
            summary: "Switches a failure mode of the mock server on and off (stall, error, \
                      stream_abort, silent_hang, slow_reload)."
                .to_owned(),
            ending: Ending::HostUndoes,
            without_segments: Vec::new(),
            labels: Vec::new(),
        }
    }

    fn arm(
        config: Config,
        context: &ArmContext,
        host: &mut impl FaultHost,
    ) -> Result<(Self, Armed), Error> {
        let until = end_of_mode(&config, context)?;
        let replicas = victims(context, host)?;
        let urls = replicas
            .iter()
            .map(admin_url)
            .collect::<Result<Vec<_>, _>>()?;
        // Everything is checked before the first effect is scheduled.
        let when = Window {
            at: context.fire_at,
            until: Some(until),
        };
        for url in &urls {
            let on = post(url, &config.body());
            let off = post(url, &serde_json::json!({ "mode": "none" }));
            host.send_http(&on, Some(&off), when)?;
        }
        let victims: Vec<String> = replicas.into_iter().map(|r| r.id).collect();
        let armed = Armed {
            statement: format!("mode {} of {}", config.mode.name(), victims.join(", ")),
            victims: victims.clone(),
        };
        let mode = config.mode;
        Ok((MockFault { victims, mode }, armed))
    }

    fn prove(&self, facts: &[Fact]) -> Proof {
        prove_all(
            self.victims
                .iter()
                .map(|victim| victim_switched(facts, victim, self.mode)),
        )
    }
}

/// The server's answer to the request (`http.status`) is the proof. It was given when the effect
/// started; whichever reading carries it counts.
fn victim_switched(facts: &[Fact], victim: &str, mode: Mode) -> Proof {
    let mode = mode.name();
    let answer =
        fact(facts, victim, "http.status").and_then(|f| f.during.as_deref().or(f.after.as_deref()));
    match answer.map(|status| (status, status.trim().parse::<u16>())) {
        Some((_, Ok(status @ 200..=299))) => Proof::Happened(format!(
            "{victim}: it took the request for mode {mode} (HTTP {status})"
        )),
        Some((_, Ok(status))) => Proof::DidNotHappen(format!(
            "{victim}: it refused the request for mode {mode} (HTTP {status})"
        )),
        Some((status, Err(_))) => Proof::CannotTell(format!(
            "{victim}: its answer to the request for mode {mode} is no HTTP status: `{status}`"
        )),
        None => Proof::CannotTell(format!(
            "{victim}: its answer to the request for mode {mode} was not read"
        )),
    }
}

fn admin_url(replica: &Replica) -> Result<String, Error> {
    let url = replica.attributes.iter().find(|a| a.key == ADMIN_URL);
    match url.map(|a| a.value.trim_end_matches('/')) {
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            Ok(format!("{url}{ADMIN_PATH}"))
        }
        Some(_) => Err(Error::Unsupported(format!(
            "replica `{}`: its {ADMIN_URL} is no http:// or https:// URL",
            replica.id
        ))),
        None => Err(Error::Unsupported(format!(
            "replica `{}` has no {ADMIN_URL}: only a mock server has these modes; give the \
             replica an {ADMIN_URL} if it is one",
            replica.id
        ))),
    }
}

fn post(url: &str, body: &serde_json::Value) -> Request {
    Request {
        method: "POST".to_owned(),
        url: url.to_owned(),
        headers: vec![field("content-type", "application/json")],
        body: body.to_string().into_bytes(),
    }
}

/// The run instant at which the mode ends: after `duration_ms`, else with the fault window.
fn end_of_mode(config: &Config, context: &ArmContext) -> Result<i64, Error> {
    let Some(duration_ms) = config.duration_ms else {
        return Ok(context.expire_at);
    };
    let room_ms = context.expire_at.saturating_sub(context.fire_at).max(0) / NS_PER_MS;
    let until = i64::try_from(duration_ms)
        .ok()
        .and_then(|ms| ms.checked_mul(NS_PER_MS))
        .and_then(|ns| context.fire_at.checked_add(ns))
        .filter(|until| *until <= context.expire_at);
    until.ok_or_else(|| {
        invalid(
            "duration_ms",
            format!(
                "{duration_ms} ms do not fit the fault window: effects must have ended {room_ms} ms \
                 after the fire"
            ),
            format!("at most {room_ms}, or a longer fault window"),
        )
    })
}
