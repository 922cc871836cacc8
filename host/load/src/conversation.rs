//! Conversations under way: what was said so far, and whose turn it is.
//!
//! A turn is sent when all turns before it have ended, in whatever way. Those that completed are its
//! history, with the server's own replies; others are left out of it. The turns of one conversation
//! may fall to different load threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use blackstart_plan::{MAX_TURNS, Turn};
use bytes::Bytes;
use tokio::sync::watch;

use crate::prompt::BodyTemplate;
use crate::shared::lock;

// One bit each.
const _: () = assert!(MAX_TURNS <= u128::BITS);

/// One conversation.
#[derive(Debug)]
pub(crate) struct Conversation {
    spoken: Mutex<Spoken>,
    /// Turns at its beginning that have all ended.
    ended: watch::Sender<u32>,
}

#[derive(Debug, Default)]
struct Spoken {
    /// Messages as JSON, separated by commas.
    history: Vec<u8>,
    /// Bit k = turn k has ended. A turn that is censored while it waits ends before its predecessor.
    ended: u128,
}

impl Conversation {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            spoken: Mutex::default(),
            ended: watch::Sender::new(0),
        })
    }

    /// A turn has ended; the number of those that have.
    fn end(&self, turn: u32) -> u32 {
        let ended = {
            let mut spoken = lock(&self.spoken);
            spoken.ended |= 1 << turn.min(MAX_TURNS - 1);
            spoken.ended
        };
        self.ended.send_replace(ended.trailing_ones());
        ended.count_ones()
    }
}

/// The conversations of an open loop that are under way.
#[derive(Debug, Default)]
pub(crate) struct Conversations {
    under_way: Mutex<HashMap<u32, Arc<Conversation>>>,
    waiting: AtomicU64,
}

impl Conversations {
    /// Begins a turn.
    pub(crate) fn enter(self: &Arc<Self>, turn: Turn) -> UnderWay {
        let conversation = lock(&self.under_way)
            .entry(turn.conversation)
            .or_insert_with(Conversation::new)
            .clone();
        UnderWay {
            conversation,
            turn,
            asked: Vec::new(),
            all: Some(Arc::clone(self)),
        }
    }

    /// Turns that wait for the end of an earlier one.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A turn under way; dropped in any way, it has ended.
#[derive(Debug)]
pub(crate) struct UnderWay {
    conversation: Arc<Conversation>,
    turn: Turn,
    /// What the user says in it, once that is known.
    asked: Vec<u8>,
    /// Where the conversation is forgotten when its last turn has ended.
    all: Option<Arc<Conversations>>,
}

/// Counts a turn that waits.
struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UnderWay {
    /// A turn of a conversation that a slot of a closed loop walks through.
    pub(crate) fn in_slot(conversation: &Arc<Conversation>, turn: Turn) -> Self {
        Self {
            conversation: Arc::clone(conversation),
            turn,
            asked: Vec::new(),
            all: None,
        }
    }

    /// Which turn it is.
    pub(crate) fn turn(&self) -> Turn {
        self.turn
    }

    /// Returns when all earlier turns have ended: whether it had to wait for that.
    pub(crate) async fn comes(&self) -> bool {
        let mut ended = self.conversation.ended.subscribe();
        if *ended.borrow_and_update() >= self.turn.turn {
            return false;
        }
        let _waiting = self.all.as_ref().map(|all| {
            all.waiting.fetch_add(1, Ordering::Relaxed);
            Waiting(&all.waiting)
        });
        // The conversation lives as long as this turn, and so does its sender.
        let _ = ended.wait_for(|turns| *turns >= self.turn.turn).await;
        true
    }

    /// The body of its request: everything said before, and what the user says now.
    pub(crate) fn body(&mut self, template: &BodyTemplate, index: u64) -> Bytes {
        self.asked = template.said_by_user(index, self.turn);
        let mut spoken = lock(&self.conversation.spoken);
        let body = template.conversation(self.turn, &spoken.history, &self.asked);
        if self.turn.turn + 1 >= self.turn.of {
            // Nobody will ask for it again.
            spoken.history = Vec::new();
            self.asked = Vec::new();
        }
        body
    }

    /// The turn was completed by a reply: the inside of a JSON string. What is none (it was cut in
    /// the middle of a character) is left out together with its turn.
    pub(crate) fn completed(&mut self, reply: &str) {
        if self.turn.turn + 1 >= self.turn.of {
            return;
        }
        let reply = format!("\"{reply}\"");
        if serde_json::from_str::<String>(&reply).is_err() {
            return;
        }
        let mut spoken = lock(&self.conversation.spoken);
        let history = &mut spoken.history;
        if !history.is_empty() {
            history.push(b',');
        }
        history.extend_from_slice(&self.asked);
        history.extend_from_slice(br#",{"role":"assistant","content":"#);
        history.extend_from_slice(reply.as_bytes());
        history.push(b'}');
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let ended = self.conversation.end(self.turn.turn);
        if let Some(all) = &self.all
            && ended >= self.turn.of
        {
            lock(&all.under_way).remove(&self.turn.conversation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(turn: u32) -> Turn {
        Turn {
            conversation: 5,
            turn,
            of: 4,
        }
    }

    fn ready(under_way: &UnderWay) -> bool {
        let mut comes = std::pin::pin!(under_way.comes());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        comes.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn a_turn_waits_for_all_before_it_and_the_last_end_forgets_the_conversation() {
        let all = Arc::new(Conversations::default());
        // In any order: load threads do not wait for each other.
        let (second, third) = (all.enter(turn(1)), all.enter(turn(2)));
        let first = all.enter(turn(0));
        assert!(ready(&first) && !ready(&second) && !ready(&third));
        assert_eq!(all.waiting(), 0, "what is dropped waits no more");
        // One that ends while it waits lets nobody pass.
        drop(second);
        assert!(!ready(&third));
        drop(first);
        assert!(ready(&third));
        drop(third);
        assert_eq!(lock(&all.under_way).len(), 1);
        drop(all.enter(turn(3)));
        assert!(lock(&all.under_way).is_empty());
    }

    #[test]
    fn a_reply_that_is_no_text_is_left_out() {
        let conversation = Conversation::new();
        let mut first = UnderWay::in_slot(&conversation, turn(0));
        first.asked = br#"{"role":"user","content":"a"}"#.to_vec();
        first.completed(r"half a character \ud83d");
        assert!(lock(&conversation.spoken).history.is_empty());
        first.completed(r#"a \"b\" \ud83d\ude00"#);
        let history = String::from_utf8(lock(&conversation.spoken).history.clone()).unwrap();
        let messages: serde_json::Value = serde_json::from_str(&format!("[{history}]")).unwrap();
        assert_eq!(messages[0]["content"], "a");
        assert_eq!(messages[1]["role"], "assistant");
        assert_eq!(messages[1]["content"], "a \"b\" 😀");
    }
}
