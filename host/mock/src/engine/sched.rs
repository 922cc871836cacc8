//! The scheduler: a FIFO queue, a bounded set of running sequences and a heap of
//! token deadlines. Pure: time comes in as an argument.
//!
//! All instants here are *engine time*: CLOCK_MONOTONIC minus the time the engine
//! was stopped. A stopped engine therefore resumes where it was, with a gap and
//! no burst, as a real one does after SIGSTOP.
//!
//! A sequence admitted at `t` has its token `k` due at
//! `t + ttft + ttft_per_prompt_token·prompt + k·itl`, exactly, however late the
//! one before was sent; a sequence that had to queue is admitted at the instant
//! the last token of the one before it was due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use crate::ipc::{Finish, FromEngine};

/// Most requests that may wait; more are aborted at once.
pub const MAX_WAITING: usize = 1_000_000;

/// Timing rules, ns.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Sequences at once.
    pub max_num_seqs: usize,
    /// Admission to first token.
    pub ttft_ns: u64,
    /// Per prompt token.
    pub ttft_per_prompt_token_ns: u64,
    /// Between tokens.
    pub itl_ns: u64,
    /// Added per running sequence.
    pub itl_per_seq_ns: u64,
    /// Largest random delay of a token.
    pub jitter_ns: u64,
    /// Seed of that delay.
    pub seed: u64,
}

/// A request to schedule.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Unique id.
    pub id: u64,
    /// Prompt length, tokens.
    pub prompt_tokens: u32,
    /// Tokens to make, at least 1.
    pub max_tokens: u32,
    /// Ends with `stop`.
    pub stops: bool,
}

#[derive(Debug)]
struct Running {
    request: Request,
    /// Tokens sent.
    sent: u32,
    /// Due instant of the next token without jitter.
    base_ns: u64,
    /// Due instant of the next token.
    due_ns: u64,
}

/// The scheduler's state.
#[derive(Debug)]
pub struct Scheduler {
    rules: Rules,
    waiting: VecDeque<Request>,
    running: HashMap<u64, Running>,
    /// (due, id); entries of ended sequences are skipped when they come up.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
}

/// Mixes seed, id and token index into a uniform 64-bit value (SplitMix64 finaliser).
fn mix(seed: u64, id: u64, index: u32) -> u64 {
    let mut z = seed
        .wrapping_add(id.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .wrapping_add(u64::from(index).wrapping_mul(0xD1B5_4A32_D192_ED03));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Scheduler {
    /// An empty scheduler.
    pub fn new(rules: Rules) -> Self {
        Scheduler {
            rules,
            waiting: VecDeque::new(),
            running: HashMap::new(),
            heap: BinaryHeap::new(),
        }
    }

    /// Running sequences.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Queued requests.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next token's due instant.
    pub fn next_due_ns(&mut self) -> Option<u64> {
        while let Some(Reverse((due, id))) = self.heap.peek().copied() {
            if self.running.get(&id).is_some_and(|r| r.due_ns == due) {
                return Some(due);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes a request that arrived at `at_ns`.
    pub fn submit(&mut self, at_ns: u64, request: Request, out: &mut impl FnMut(FromEngine)) {
        if self.running.len() < self.rules.max_num_seqs && self.waiting.is_empty() {
            self.admit(at_ns, request, out);
        } else if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(request);
        } else {
            out(FromEngine::Ended {
                id: request.id,
                at_ns,
                finish: Finish::Abort,
            });
        }
    }

    fn jitter(&self, id: u64, index: u32) -> u64 {
        match self.rules.jitter_ns {
            0 => 0,
            j => mix(self.rules.seed, id, index) % (j + 1),
        }
    }

    fn admit(&mut self, at_ns: u64, request: Request, out: &mut impl FnMut(FromEngine)) {
        let r = &self.rules;
        // Saturating: absurd settings make tokens late, never a panic.
        let base_ns = at_ns.saturating_add(r.ttft_ns).saturating_add(
            r.ttft_per_prompt_token_ns
                .saturating_mul(u64::from(request.prompt_tokens)),
        );
        let due_ns = base_ns.saturating_add(self.jitter(request.id, 0));
        self.heap.push(Reverse((due_ns, request.id)));
        self.running.insert(
            request.id,
            Running {
                request,
                sent: 0,
                base_ns,
                due_ns,
            },
        );
        out(FromEngine::Admitted {
            id: request.id,
            at_ns,
        });
    }

    fn fill(&mut self, at_ns: u64, out: &mut impl FnMut(FromEngine)) {
        while self.running.len() < self.rules.max_num_seqs {
            let Some(request) = self.waiting.pop_front() else {
                break;
            };
            self.admit(at_ns, request, out);
        }
    }

    /// Sends the tokens due up to `now_ns`, in order of their due instants.
    pub fn advance(&mut self, now_ns: u64, out: &mut impl FnMut(FromEngine)) {
        while let Some(due_ns) = self.next_due_ns() {
            if due_ns > now_ns {
                break;
            }
            let Some(Reverse((_, id))) = self.heap.pop() else {
                break;
            };
            let concurrency = self.running.len() as u64;
            let rules = self.rules;
            let Some(seq) = self.running.get_mut(&id) else {
                continue;
            };
            let index = seq.sent;
            seq.sent += 1;
            let last = seq.sent >= seq.request.max_tokens;
            let finish = last.then_some(if seq.request.stops {
                Finish::Stop
            } else {
                Finish::Length
            });
            if last {
                self.running.remove(&id);
            } else {
                seq.base_ns = seq
                    .base_ns
                    .saturating_add(rules.itl_ns)
                    .saturating_add(rules.itl_per_seq_ns.saturating_mul(concurrency));
                let (base_ns, next) = (seq.base_ns, seq.sent);
                // Jitter delays a token, never past what came before it.
                let due = base_ns.saturating_add(self.jitter(id, next)).max(due_ns);
                if let Some(seq) = self.running.get_mut(&id) {
                    seq.due_ns = due;
                }
                self.heap.push(Reverse((due, id)));
            }
            out(FromEngine::Token {
                id,
                index,
                due_ns,
                finish,
            });
            if last {
                self.fill(due_ns, out);
            }
        }
    }

    /// Drops a request whose client went away; its place goes to the next in line.
    pub fn abort(&mut self, at_ns: u64, id: u64, out: &mut impl FnMut(FromEngine)) {
        if self.running.remove(&id).is_some() {
            self.fill(at_ns, out);
        } else if let Some(at) = self.waiting.iter().position(|r| r.id == id) {
            self.waiting.remove(at);
        }
    }

    /// Ends everything with `abort`.
    pub fn abort_all(&mut self, at_ns: u64, out: &mut impl FnMut(FromEngine)) {
        let mut ids: Vec<u64> = self.running.keys().copied().collect();
        ids.sort_unstable();
        ids.extend(self.waiting.iter().map(|r| r.id));
        self.running.clear();
        self.waiting.clear();
        self.heap.clear();
        for id in ids {
            out(FromEngine::Ended {
                id,
                at_ns,
                finish: Finish::Abort,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rules(seqs: usize) -> Rules {
        Rules {
            max_num_seqs: seqs,
            ttft_ns: 20 * MS,
            ttft_per_prompt_token_ns: 0,
            itl_ns: 10 * MS,
            itl_per_seq_ns: 0,
            jitter_ns: 0,
            seed: 1,
        }
    }

    fn req(id: u64, max_tokens: u32) -> Request {
        Request {
            id,
            prompt_tokens: 5,
            max_tokens,
            stops: false,
        }
    }

    fn run(s: &mut Scheduler, until: u64) -> Vec<FromEngine> {
        let mut got = Vec::new();
        s.advance(until, &mut |m| got.push(m));
        got
    }

    fn submit(s: &mut Scheduler, at: u64, r: Request) -> Vec<FromEngine> {
        let mut got = Vec::new();
        s.submit(at, r, &mut |m| got.push(m));
        got
    }

    #[test]
    fn tokens_keep_absolute_instants_however_late_the_wakeups() {
        let mut s = Scheduler::new(rules(4));
        submit(&mut s, 1000, req(1, 4));
        assert_eq!(s.next_due_ns(), Some(1000 + 20 * MS));
        let mut due = Vec::new();
        for wake in [1000 + 27 * MS, 1000 + 49 * MS, 1000 + 90 * MS] {
            for m in run(&mut s, wake) {
                if let FromEngine::Token { due_ns, .. } = m {
                    due.push(due_ns);
                }
            }
        }
        assert_eq!(due, [20, 30, 40, 50].map(|k| 1000 + k * MS));
        assert_eq!(s.running(), 0);
    }

    #[test]
    fn queue_is_fifo_and_admits_at_the_analytic_instant() {
        let mut s = Scheduler::new(rules(1));
        for id in 1..=3 {
            submit(&mut s, 0, req(id, 2));
        }
        assert_eq!((s.running(), s.waiting()), (1, 2));
        let admitted: Vec<(u64, u64)> = run(&mut s, 1_000 * MS)
            .into_iter()
            .filter_map(|m| match m {
                FromEngine::Admitted { id, at_ns } => Some((id, at_ns / MS)),
                _ => None,
            })
            .collect();
        // Each takes 20 + 10 ms; one late wake-up shifts nothing.
        assert_eq!(admitted, [(2, 30), (3, 60)]);
    }

    #[test]
    fn concurrency_and_prompt_slow_tokens_down() {
        let mut r = rules(8);
        r.itl_per_seq_ns = MS;
        r.ttft_per_prompt_token_ns = MS;
        let mut s = Scheduler::new(r);
        submit(&mut s, 0, req(1, 2));
        submit(&mut s, 0, req(2, 2));
        let due: Vec<u64> = run(&mut s, 1_000 * MS)
            .into_iter()
            .filter_map(|m| match m {
                FromEngine::Token { due_ns, .. } => Some(due_ns / MS),
                _ => None,
            })
            .collect();
        assert_eq!(due, [25, 25, 37, 37]);
    }

    #[test]
    fn jitter_is_bounded_seeded_and_keeps_order() {
        let mut r = rules(8);
        r.jitter_ns = 50 * MS;
        let collect = || {
            let mut s = Scheduler::new(r);
            submit(&mut s, 0, req(7, 50));
            run(&mut s, 10_000 * MS)
                .into_iter()
                .filter_map(|m| match m {
                    FromEngine::Token { due_ns, .. } => Some(due_ns),
                    _ => None,
                })
                .collect::<Vec<u64>>()
        };
        let due = collect();
        assert_eq!(due, collect());
        assert_eq!(due.len(), 50);
        assert!(due.windows(2).all(|w| w[0] <= w[1]));
        let plain = |k: usize| (20 + 10 * k as u64) * MS;
        assert!(
            due.iter()
                .enumerate()
                .all(|(k, d)| *d >= plain(k) && *d <= plain(k) + 50 * MS)
        );
        assert!(due.iter().enumerate().any(|(k, d)| *d != plain(k)));
    }

    #[test]
    fn abort_frees_the_place_and_abort_all_reports_everyone() {
        let mut s = Scheduler::new(rules(1));
        submit(&mut s, 0, req(1, 9));
        submit(&mut s, 0, req(2, 9));
        submit(&mut s, 0, req(3, 9));
        let mut got = Vec::new();
        s.abort(5 * MS, 3, &mut |m| got.push(m));
        s.abort(6 * MS, 1, &mut |m| got.push(m));
        assert_eq!(
            got,
            [FromEngine::Admitted {
                id: 2,
                at_ns: 6 * MS
            }]
        );
        assert_eq!(s.next_due_ns(), Some(26 * MS));
        submit(&mut s, 7 * MS, req(4, 9));
        got.clear();
        s.abort_all(8 * MS, &mut |m| got.push(m));
        assert_eq!(
            got,
            [2, 4].map(|id| FromEngine::Ended {
                id,
                at_ns: 8 * MS,
                finish: Finish::Abort
            })
        );
        assert_eq!(s.next_due_ns(), None);
    }

    #[test]
    fn absurd_settings_never_panic() {
        let mut r = rules(2);
        r.ttft_per_prompt_token_ns = u64::MAX / 2;
        r.itl_per_seq_ns = u64::MAX;
        r.jitter_ns = u64::MAX - 1;
        let mut s = Scheduler::new(r);
        submit(
            &mut s,
            1,
            Request {
                prompt_tokens: u32::MAX,
                ..req(1, 3)
            },
        );
        assert_eq!(s.next_due_ns(), Some(u64::MAX));
        assert_eq!(run(&mut s, u64::MAX).len(), 3);
    }

    #[test]
    fn stop_and_length_are_told_apart() {
        let mut s = Scheduler::new(rules(2));
        submit(
            &mut s,
            0,
            Request {
                stops: true,
                ..req(1, 1)
            },
        );
        submit(&mut s, 0, req(2, 1));
        let finishes: Vec<_> = run(&mut s, 1_000 * MS)
            .into_iter()
            .filter_map(|m| match m {
                FromEngine::Token { finish, .. } => finish,
                _ => None,
            })
            .collect();
        assert_eq!(finishes, [Finish::Stop, Finish::Length]);
    }
}
