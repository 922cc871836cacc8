//! Request bodies: synthetic prompts with words that make each unique, a text, or a data set.

mod data_set;

use blackstart_plan::{Endpoint, LoadPlan, MAX_TURNS, Turn};
use bytes::Bytes;

use crate::LoadError;
use data_set::Content;
pub use data_set::{DataSet, MAX_DATA_SET_BYTES, MAX_DATA_SET_LINES};

/// Longest text that is sent as a prompt, in bytes.
pub const MAX_PROMPT_BYTES: usize = 64 << 20;

/// What the requests of a load ask.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompts {
    /// Words made up from the seed and the request's place.
    Synthetic {
        /// Words that all prompts begin with, before those that make each unique: what a prefix
        /// cache can serve.
        shared_words: u32,
    },
    /// One text, behind words that make each prompt unique.
    Text(String),
    /// The lines of a data set, one after the other, and from the start again. Sent as they are: a
    /// line that comes again may be served from a cache.
    DataSet(DataSet),
}

impl Prompts {
    /// Prompts that share nothing: what a fault campaign sends.
    pub const UNIQUE: Self = Self::Synthetic { shared_words: 0 };
}

/// Words that make a prompt unique. They come first, so that no prefix cache can serve it.
pub const UNIQUE_WORDS: u32 = 3;
/// Longest synthetic prompt.
pub const MAX_PROMPT_WORDS: u32 = 1 << 20;

/// Syllables of a unique word; each one carries 6 bits, so that three words carry the 64 of a
/// request's identity.
const SYLLABLES_PER_WORD: u32 = 4;
const CONSONANTS: &[u8; 16] = b"bdfgjklmnprstvwz";
const VOWELS: &[u8; 4] = b"aeio";

/// The common rest of all prompts: ordinary words, about one token each, repeated.
const FILLER: [&str; 16] = [
    "time", "water", "people", "house", "light", "world", "paper", "music", "river", "stone",
    "green", "small", "early", "quiet", "north", "table",
];

/// Builds the body of any request of a run.
#[derive(Debug, Clone)]
pub(crate) enum BodyTemplate {
    /// Unique words between two constant parts.
    Unique {
        before: Vec<u8>,
        after: Vec<u8>,
        /// The same for a turn of a conversation.
        message: TurnMessage,
        seed: u64,
        exact_tokens: Option<u32>,
    },
    /// Bodies that are ready, with the tokens that a completion must have.
    Ready(Vec<(Bytes, Option<u32>)>),
    /// Conversations of a data set.
    Conversations {
        /// The body up to the messages.
        before: Vec<u8>,
        lines: Vec<ConversationLine>,
    },
}

/// Parts of a synthetic turn of a conversation, besides its unique words.
#[derive(Debug, Clone)]
pub(crate) struct TurnMessage {
    /// The body up to the messages.
    body: Vec<u8>,
    /// What the message of a first turn begins with, and that of a later one: only the first has the
    /// shared words, which the later ones then have before them too.
    first: Vec<u8>,
    later: Vec<u8>,
    /// How any of them ends.
    end: Vec<u8>,
    /// Behind the messages.
    options: Vec<u8>,
}

/// A conversation of a data set.
#[derive(Debug, Clone)]
pub(crate) struct ConversationLine {
    /// What is said in each turn: messages as JSON, separated by commas.
    said: Vec<Vec<u8>>,
    /// Behind the messages.
    options: Vec<u8>,
    exact_tokens: Option<u32>,
}

/// How a list of messages opens in a body, and how it closes.
const MESSAGES: &str = r#""messages":["#;
const MESSAGES_END: &str = "]";
const USER: &str = r#"{"role":"user","content":""#;
const USER_END: &str = r#""}"#;

impl BodyTemplate {
    /// The template of a load.
    ///
    /// # Errors
    /// [`LoadError::Plan`] when the prompt is too short to be unique, or too long, or the data set
    /// does not fit the API.
    pub(crate) fn new(plan: &LoadPlan, prompts: &Prompts, seed: u64) -> Result<Self, LoadError> {
        let unique = |shared: &str, rest: &str| {
            let (open, close) = match plan.endpoint {
                Endpoint::Chat => (r#""messages":[{"role":"user","content":""#, r#""}]"#),
                Endpoint::Completions => (r#""prompt":""#, r#"""#),
            };
            let model = serde_json::Value::from(plan.model.as_str());
            let options = options(plan, plan.max_tokens);
            Self::Unique {
                before: format!(r#"{{"model":{model},{open}{shared}"#).into_bytes(),
                after: format!("{rest}{close}{options}}}").into_bytes(),
                message: TurnMessage {
                    body: format!(r#"{{"model":{model},{MESSAGES}"#).into_bytes(),
                    first: format!("{USER}{shared}").into_bytes(),
                    later: USER.into(),
                    end: format!("{rest}{USER_END}").into_bytes(),
                    options: format!("{MESSAGES_END}{options}}}").into_bytes(),
                },
                seed,
                exact_tokens: exact_tokens(plan, plan.max_tokens),
            }
        };
        match prompts {
            Prompts::Synthetic { shared_words } => {
                let needed = UNIQUE_WORDS.saturating_add(*shared_words);
                if !(needed..=MAX_PROMPT_WORDS).contains(&plan.prompt_words) {
                    return Err(LoadError::Plan {
                        what: format!(
                            "prompt_words = {}: {needed} words are shared or make a prompt unique \
                             and {MAX_PROMPT_WORDS} is the most; choose a number between them",
                            plan.prompt_words
                        ),
                    });
                }
                let word = |i: u32| FILLER[i as usize % FILLER.len()];
                let shared = (0..*shared_words).fold(String::new(), |text, i| text + word(i) + " ");
                let rest =
                    (needed..plan.prompt_words).fold(String::new(), |text, i| text + " " + word(i));
                Ok(unique(&shared, &rest))
            }
            Prompts::Text(text) => {
                if text.len() > MAX_PROMPT_BYTES {
                    return Err(LoadError::Plan {
                        what: format!(
                            "a prompt of {} bytes; at most {MAX_PROMPT_BYTES}",
                            text.len()
                        ),
                    });
                }
                // Escaped as JSON, without its quotes.
                let quoted = serde_json::Value::from(text.as_str()).to_string();
                Ok(unique("", &format!("\\n{}", &quoted[1..quoted.len() - 1])))
            }
            Prompts::DataSet(set) if set.most_turns().is_some() => {
                if plan.endpoint != Endpoint::Chat {
                    return Err(LoadError::Plan {
                        what: "the completions API knows no turns; use the chat API".to_owned(),
                    });
                }
                let model = serde_json::Value::from(plan.model.as_str());
                Ok(Self::Conversations {
                    before: format!(r#"{{"model":{model},{MESSAGES}"#).into_bytes(),
                    lines: set
                        .lines
                        .iter()
                        .map(|line| conversation_line(plan, line))
                        .collect(),
                })
            }
            Prompts::DataSet(set) => {
                let body = |(number, line): (usize, &data_set::Line)| {
                    let max_tokens = line.max_tokens.unwrap_or(plan.max_tokens);
                    let what = match (plan.endpoint, &line.content) {
                        (Endpoint::Chat, Content::Messages(messages)) => {
                            format!(r#""messages":{messages}"#)
                        }
                        (Endpoint::Chat, Content::Prompt(text)) => {
                            let text = serde_json::Value::from(text.as_str());
                            format!(r#""messages":[{{"role":"user","content":{text}}}]"#)
                        }
                        (Endpoint::Completions, Content::Prompt(text)) => {
                            let text = serde_json::Value::from(text.as_str());
                            format!(r#""prompt":{text}"#)
                        }
                        // A data set with turns is one of conversations, above.
                        (_, Content::Turns(_)) | (Endpoint::Completions, Content::Messages(_)) => {
                            return Err(LoadError::Plan {
                                what: format!(
                                    "request {} of the data set has `messages`, which the \
                                     completions API does not take; use the chat API",
                                    number + 1
                                ),
                            });
                        }
                    };
                    let model = serde_json::Value::from(plan.model.as_str());
                    let options = options(plan, max_tokens);
                    let body = format!(r#"{{"model":{model},{what}{options}}}"#);
                    Ok((Bytes::from(body), exact_tokens(plan, max_tokens)))
                };
                let bodies: Result<_, _> = set.lines.iter().enumerate().map(body).collect();
                bodies.map(Self::Ready)
            }
        }
    }

    /// The body of one request, and the tokens that its completion must have, if that is fixed.
    pub(crate) fn body(&self, index: u64) -> (Bytes, Option<u32>) {
        match self {
            Self::Unique {
                before,
                after,
                seed,
                exact_tokens,
                ..
            } => {
                let unique = (UNIQUE_WORDS * (SYLLABLES_PER_WORD * 2 + 1)) as usize;
                let mut body = Vec::with_capacity(before.len() + unique + after.len());
                body.extend_from_slice(before);
                push_unique_words(&mut body, identity(*seed, index));
                body.extend_from_slice(after);
                (Bytes::from(body), *exact_tokens)
            }
            // A data set is never empty.
            Self::Ready(bodies) => bodies[(index % bodies.len() as u64) as usize].clone(),
            Self::Conversations { .. } => {
                // Without a schedule of conversations each request begins one.
                let turn = Turn {
                    conversation: index as u32,
                    turn: 0,
                    of: 1,
                };
                let body = self.conversation(turn, &[], &self.said_by_user(index, turn));
                (body, self.exact_tokens(turn.conversation))
            }
        }
    }

    /// The tokens that the completions of a conversation must have, if that is fixed.
    pub(crate) fn exact_tokens(&self, conversation: u32) -> Option<u32> {
        match self {
            Self::Unique { exact_tokens, .. } => *exact_tokens,
            Self::Ready(bodies) => bodies[conversation as usize % bodies.len()].1,
            Self::Conversations { lines, .. } => line_of(lines, conversation).exact_tokens,
        }
    }

    /// Turns that a conversation has, as far as its texts say.
    pub(crate) fn turns(&self, conversation: u32) -> u32 {
        match self {
            Self::Unique { .. } => MAX_TURNS,
            Self::Ready(_) => 1,
            // Bounded when it was read.
            Self::Conversations { lines, .. } => line_of(lines, conversation).said.len() as u32,
        }
    }

    /// What the user says in a turn: messages as JSON, separated by commas.
    pub(crate) fn said_by_user(&self, index: u64, turn: Turn) -> Vec<u8> {
        match self {
            Self::Unique { message, seed, .. } => {
                let begin = if turn.turn == 0 {
                    &message.first
                } else {
                    &message.later
                };
                let mut said = begin.clone();
                push_unique_words(&mut said, identity(*seed, index));
                said.extend_from_slice(&message.end);
                said
            }
            Self::Conversations { lines, .. } => {
                let said = &line_of(lines, turn.conversation).said;
                said.get(turn.turn as usize).cloned().unwrap_or_default()
            }
            // Single requests, which have no turns: refused before the start.
            Self::Ready(_) => Vec::new(),
        }
    }

    /// The body of a turn: what was said before, and what the user says now.
    pub(crate) fn conversation(&self, turn: Turn, history: &[u8], now: &[u8]) -> Bytes {
        let (before, options): (&[u8], &[u8]) = match self {
            Self::Unique { message, .. } => (&message.body, &message.options),
            Self::Conversations { before, lines } => {
                (before, &line_of(lines, turn.conversation).options)
            }
            Self::Ready(_) => (&[], &[]),
        };
        let comma: &[u8] = if history.is_empty() { b"" } else { b"," };
        Bytes::from([before, history, comma, now, options].concat())
    }

    /// Whether requests can be turns of conversations.
    pub(crate) fn has_turns(&self, plan: &LoadPlan) -> bool {
        plan.endpoint == Endpoint::Chat && !matches!(self, Self::Ready(_))
    }
}

/// The line of a conversation; a data set is never empty.
fn line_of(lines: &[ConversationLine], conversation: u32) -> &ConversationLine {
    &lines[conversation as usize % lines.len()]
}

fn conversation_line(plan: &LoadPlan, line: &data_set::Line) -> ConversationLine {
    let user = |text: &str| {
        let text = serde_json::Value::from(text);
        format!(r#"{{"role":"user","content":{text}}}"#).into_bytes()
    };
    let max_tokens = line.max_tokens.unwrap_or(plan.max_tokens);
    ConversationLine {
        said: match &line.content {
            Content::Prompt(text) => vec![user(text)],
            Content::Turns(texts) => texts.iter().map(|text| user(text)).collect(),
            Content::Messages(messages) => {
                let list = messages.to_string();
                // A list, as was checked when it was read; without its brackets.
                vec![list.as_bytes()[1..list.len() - 1].to_vec()]
            }
        },
        options: format!("{MESSAGES_END}{}}}", options(plan, max_tokens)).into_bytes(),
        exact_tokens: exact_tokens(plan, max_tokens),
    }
}

/// Everything of a body behind the prompt, up to the closing brace.
fn options(plan: &LoadPlan, max_tokens: u32) -> String {
    format!(
        r#","max_tokens":{max_tokens},"stream":true,"stream_options":{{"include_usage":true}}{}"#,
        if plan.ignore_eos {
            r#","ignore_eos":true"#
        } else {
            ""
        }
    )
}

fn exact_tokens(plan: &LoadPlan, max_tokens: u32) -> Option<u32> {
    plan.ignore_eos.then_some(max_tokens)
}

/// A number that no other request of the run has (the mixing is a bijection of the index), and one
/// of another run only by a chance of 1 in 2^64.
fn identity(seed: u64, index: u64) -> u64 {
    mix(mix(seed) ^ index)
}

/// The finalizer of SplitMix64: a bijection in which each bit of the input moves half of the output.
fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn push_unique_words(out: &mut Vec<u8>, mut bits: u64) {
    for word in 0..UNIQUE_WORDS {
        if word > 0 {
            out.push(b' ');
        }
        for _ in 0..SYLLABLES_PER_WORD {
            out.push(CONSONANTS[(bits & 15) as usize]);
            out.push(VOWELS[(bits >> 4 & 3) as usize]);
            bits >>= 6;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use blackstart_plan::Arrivals;
    use std::collections::HashSet;

    pub(crate) fn plan(base_url: &str) -> LoadPlan {
        LoadPlan {
            rate_per_s: 10.0,
            arrivals: Arrivals::Constant,
            endpoint: Endpoint::Chat,
            model: "a \"model\"\n".to_owned(),
            max_tokens: 7,
            ignore_eos: true,
            prompt_words: 20,
            timeout_ns: 1_000_000_000,
            idle_timeout_ns: None,
            first_token_timeout_ns: None,
            base_url: base_url.to_owned(),
            headers: Vec::new(),
            api_key_env: None,
            replica_header: None,
            threads: 1,
            real_time: false,
        }
    }

    #[test]
    fn bodies_say_what_the_plan_says() {
        let mut plan = plan("");
        let json = |plan: &LoadPlan| -> serde_json::Value {
            let (body, exact) = BodyTemplate::new(plan, &Prompts::UNIQUE, 9)
                .unwrap()
                .body(5);
            assert_eq!(exact, plan.ignore_eos.then_some(7));
            serde_json::from_slice(&body).unwrap()
        };
        let chat = json(&plan);
        assert_eq!(chat["model"], "a \"model\"\n");
        assert_eq!(chat["max_tokens"], 7);
        assert_eq!(chat["stream"], true);
        assert_eq!(chat["stream_options"]["include_usage"], true);
        assert_eq!(chat["ignore_eos"], true);
        let prompt = chat["messages"][0]["content"].as_str().unwrap();
        assert_eq!(prompt.split(' ').count(), 20);
        plan.ignore_eos = false;
        plan.endpoint = Endpoint::Completions;
        let completion = json(&plan);
        assert_eq!(completion["prompt"], prompt);
        assert!(completion.get("ignore_eos").is_none());
        plan.prompt_words = UNIQUE_WORDS;
        assert_eq!(
            json(&plan)["prompt"].as_str().unwrap().split(' ').count(),
            3
        );
        plan.prompt_words = 2;
        assert!(BodyTemplate::new(&plan, &Prompts::UNIQUE, 9).is_err());
    }

    #[test]
    fn prompts_differ_from_their_first_word_on() {
        let template = BodyTemplate::new(&plan(""), &Prompts::UNIQUE, 1).unwrap();
        let bodies: HashSet<Bytes> = (0..10_000).map(|i| template.body(i).0).collect();
        assert_eq!(bodies.len(), 10_000);
        let lengths: HashSet<usize> = bodies.iter().map(Bytes::len).collect();
        assert_eq!(lengths.len(), 1, "all prompts have one length");
        let BodyTemplate::Unique { before, .. } = &template else {
            panic!("{template:?}");
        };
        let start = before.len();
        let firsts: HashSet<&[u8]> = bodies.iter().map(|b| &b[start..start + 8]).collect();
        assert!(firsts.len() > 9_900, "{}", firsts.len());
    }

    fn content(plan: &LoadPlan, prompts: &Prompts, index: u64) -> (String, serde_json::Value) {
        let template = BodyTemplate::new(plan, prompts, 3).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&template.body(index).0).unwrap();
        let text = body["messages"][0]["content"].as_str().unwrap().to_owned();
        (text, body)
    }

    #[test]
    fn shared_words_come_first_and_the_rest_differs() {
        let plan = plan("");
        let prompts = Prompts::Synthetic { shared_words: 10 };
        let ((a, _), (b, _)) = (content(&plan, &prompts, 0), content(&plan, &prompts, 1));
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (a, b) = (words(&a), words(&b));
        assert_eq!((a.len(), b.len()), (20, 20));
        assert_eq!(a[..10], b[..10]);
        assert_ne!(a[10], b[10]);
        let too_many = Prompts::Synthetic { shared_words: 18 };
        assert!(BodyTemplate::new(&plan, &too_many, 3).is_err());
    }

    #[test]
    fn a_text_comes_behind_unique_words() {
        let text = "say \"hi\"\n\tto \u{1}ä";
        let (said, _) = content(&plan(""), &Prompts::Text(text.to_owned()), 0);
        assert!(said.ends_with(&format!("\n{text}")), "{said:?}");
        assert_ne!(
            said,
            content(&plan(""), &Prompts::Text(text.to_owned()), 1).0
        );
    }

    #[test]
    fn a_data_set_goes_round() {
        let set = DataSet::parse(
            br#"{"prompt":"first \"one\""}
               {"messages":[{"role":"user","content":"second"}],"max_tokens":2}"#,
        )
        .unwrap();
        let prompts = Prompts::DataSet(set);
        let mut plan = plan("");
        assert_eq!(content(&plan, &prompts, 0).0, "first \"one\"");
        let (text, body) = content(&plan, &prompts, 3);
        assert_eq!((text.as_str(), &body["max_tokens"]), ("second", &2.into()));
        let template = BodyTemplate::new(&plan, &prompts, 3).unwrap();
        assert_eq!((template.body(0).1, template.body(1).1), (Some(7), Some(2)));
        plan.endpoint = Endpoint::Completions;
        let error = BodyTemplate::new(&plan, &prompts, 3)
            .unwrap_err()
            .to_string();
        assert!(error.contains("request 2"), "{error}");
    }

    fn turn_body(
        template: &BodyTemplate,
        index: u64,
        turn: Turn,
        history: &str,
    ) -> serde_json::Value {
        let said = template.said_by_user(index, turn);
        let body = template.conversation(turn, history.as_bytes(), &said);
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn turns_carry_the_history_and_only_the_first_says_the_shared_words() {
        let plan = plan("");
        let prompts = Prompts::Synthetic { shared_words: 10 };
        let template = BodyTemplate::new(&plan, &prompts, 3).unwrap();
        let turn = |turn| Turn {
            conversation: 4,
            turn,
            of: 2,
        };
        // A first turn is what a single request is.
        let first = turn_body(&template, 7, turn(0), "");
        let single: serde_json::Value = serde_json::from_slice(&template.body(7).0).unwrap();
        assert_eq!(first, single);
        let history = r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"}"#;
        let second = turn_body(&template, 9, turn(1), history);
        assert_eq!(second["messages"][1]["content"], "b");
        let text = second["messages"][2]["content"].as_str().unwrap();
        assert_eq!(text.split(' ').count(), 10);
        assert_eq!(second["max_tokens"], first["max_tokens"]);
    }

    #[test]
    fn conversations_of_a_data_set() {
        let set = DataSet::parse(
            br#"{"turns":["one","two \"x\""],"max_tokens":2}
               {"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]}
               {"messages":[]}
               {"prompt":"p"}"#,
        )
        .unwrap();
        let template = BodyTemplate::new(&plan(""), &Prompts::DataSet(set.clone()), 3).unwrap();
        let turn = |conversation, turn| Turn {
            conversation,
            turn,
            of: 2,
        };
        let body = turn_body(
            &template,
            0,
            turn(4, 1),
            r#"{"role":"user","content":"one"}"#,
        );
        assert_eq!(body["messages"][0]["content"], "one");
        assert_eq!(body["messages"][1]["content"], "two \"x\"");
        assert_eq!(body["max_tokens"], 2);
        assert_eq!(template.exact_tokens(4), Some(2));
        let body = turn_body(&template, 0, turn(1, 0), "");
        assert_eq!(body["messages"][0]["role"], "system");
        assert_eq!(body["messages"][1]["content"], "u");
        assert_eq!(template.turns(0), 2);
        assert_eq!(template.turns(7), 1);
        assert_eq!(
            turn_body(&template, 0, turn(2, 0), "")["messages"]
                .as_array()
                .unwrap()
                .len(),
            0
        );
        let mut completions = plan("");
        completions.endpoint = Endpoint::Completions;
        let error = BodyTemplate::new(&completions, &Prompts::DataSet(set), 3).unwrap_err();
        assert!(error.to_string().contains("use the chat API"), "{error}");
    }
}
