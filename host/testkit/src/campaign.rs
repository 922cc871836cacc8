//! Short campaigns against the mock, as text: what a test changes is all that it says.

use std::fmt::Write;

/// A campaign file. [`CampaignText::new`] is a run of 14 s: 1 s of warm-up, 4 s of baseline, 8 s
/// after the fire, 1 s of cooldown.
#[derive(Debug, Clone)]
pub struct CampaignText {
    /// Its name.
    pub name: String,
    /// The mock's port.
    pub port: u16,
    /// The mock's admin port, if it has one.
    pub admin_port: Option<u16>,
    /// Repetitions.
    pub runs: u32,
    /// Whether a negative control follows.
    pub negative_control: bool,
    /// `warmup`, `baseline`, `fault_window`, `cooldown`.
    pub phases: [&'static str; 4],
    /// Further lines of `[load]`.
    pub load: String,
    /// Further arguments of the mock.
    pub mock: Vec<String>,
    /// Restart policy of the mock.
    pub restart: &'static str,
    /// Everything from `[fault]` on; empty = no fault.
    pub fault: String,
}

impl CampaignText {
    /// A campaign of one run without a fault, against a mock on this port.
    pub fn new(name: &str, port: u16) -> Self {
        Self {
            name: name.to_owned(),
            port,
            admin_port: None,
            runs: 1,
            negative_control: false,
            phases: ["1s", "4s", "8s", "1s"],
            load: String::new(),
            mock: vec!["--startup-scale".to_owned(), "0.2".to_owned()],
            restart: "always",
            fault: String::new(),
        }
    }

    /// With a bundled process fault on replica `r0`: `config` holds lines of `[fault.config]`.
    #[must_use]
    pub fn process_fault(mut self, variant: &str, config: &str) -> Self {
        self.fault = format!(
            "[fault]\nvariant = \"{variant}\"\nvictims = [\"r0\"]\n\n[fault.config]\n{config}\n\n[fault.grant]\nprocess = [\"r0\"]\n"
        );
        self
    }

    /// The file.
    pub fn text(&self) -> String {
        let [warmup, baseline, fault_window, cooldown] = self.phases;
        let (name, port, runs) = (&self.name, self.port, self.runs);
        let control = self.negative_control;
        let mut mock: String = self.mock.iter().fold(String::new(), |mut all, argument| {
            let _ = write!(all, ", {argument:?}");
            all
        });
        let mut admin = String::new();
        if let Some(port) = self.admin_port {
            let _ = write!(mock, ", \"--admin-port\", \"{port}\"");
            admin = format!("admin_url = \"http://127.0.0.1:{port}\"\n");
        }
        format!(
            r#"name = "{name}"
profile = "free"
seed = 7
runs = {runs}
negative_control = {control}

[phases]
warmup = "{warmup}"
baseline = "{baseline}"
fault_window = "{fault_window}"
cooldown = "{cooldown}"

# 15.5 req/s, each of 388 ms: around the fire, sends and ends are each 30 ms away from it, so that
# which requests are in flight is no matter of a millisecond.
[load]
rate = 15.5
arrivals = "constant"
model = "mock"
max_tokens = 30
prompt_words = 8
timeout = "1500ms"
{load}
[target]
accelerators = "none"

[[target.replica]]
id = "r0"
base_url = "http://127.0.0.1:{port}"
{admin}
[target.replica.process]
command = ["${{blackstart}}", "mock", "--port", "{port}", "--model", "mock", "--ttft-ms", "40", "--itl-ms", "12"{mock}]
restart = "{restart}"
restart_delay = "300ms"
start_timeout = "60s"
stop_timeout = "5s"

{fault}
[observe]
probe_interval = "250ms"
probe_interval_outage = "50ms"
probe_timeout = "1s"
metrics_interval = "250ms"

[recovery]
window = "1s"
hold = "2s"

# Tests share their machine: how busy the client's is says nothing here.
[gates.G2.config]
max_cpu_percent = 100
max_skew_us_p99 = 1000000
max_skew_us_max = 10000000
max_stall_us_p99 = 1000000
"#,
            load = self.load,
            restart = self.restart,
            fault = self.fault,
        )
    }
}
