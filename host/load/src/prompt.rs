//! Request bodies: a template built once, with the words that make each prompt unique.

use blackstart_plan::{Endpoint, LoadPlan};
use bytes::Bytes;

use crate::LoadError;

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
pub(crate) struct BodyTemplate {
    before: Vec<u8>,
    after: Vec<u8>,
    seed: u64,
}

impl BodyTemplate {
    /// The template of a load.
    ///
    /// # Errors
    /// [`LoadError::Plan`] when the prompt is too short to be unique, or too long.
    pub(crate) fn new(plan: &LoadPlan, seed: u64) -> Result<Self, LoadError> {
        if !(UNIQUE_WORDS..=MAX_PROMPT_WORDS).contains(&plan.prompt_words) {
            return Err(LoadError::Plan {
                what: format!(
                    "prompt_words = {}: {UNIQUE_WORDS} words make a prompt unique and \
                     {MAX_PROMPT_WORDS} is the most; choose a number between them",
                    plan.prompt_words
                ),
            });
        }
        let filler = (UNIQUE_WORDS..plan.prompt_words)
            .map(|i| FILLER[i as usize % FILLER.len()])
            .fold(String::new(), |text, word| text + " " + word);
        // serde_json escapes what the model's name may hold.
        let model = serde_json::Value::from(plan.model.as_str());
        let options = format!(
            r#","max_tokens":{},"stream":true,"stream_options":{{"include_usage":true}}{}}}"#,
            plan.max_tokens,
            if plan.ignore_eos {
                r#","ignore_eos":true"#
            } else {
                ""
            }
        );
        let (before, after) = match plan.endpoint {
            Endpoint::Chat => (
                format!(r#"{{"model":{model},"messages":[{{"role":"user","content":""#),
                format!(r#"{filler}"}}]{options}"#),
            ),
            Endpoint::Completions => (
                format!(r#"{{"model":{model},"prompt":""#),
                format!(r#"{filler}"{options}"#),
            ),
        };
        Ok(Self {
            before: before.into_bytes(),
            after: after.into_bytes(),
            seed,
        })
    }

    /// The body of one request.
    pub(crate) fn body(&self, index: u64) -> Bytes {
        let unique = (UNIQUE_WORDS * (SYLLABLES_PER_WORD * 2 + 1)) as usize;
        let mut body = Vec::with_capacity(self.before.len() + unique + self.after.len());
        body.extend_from_slice(&self.before);
        push_unique_words(&mut body, identity(self.seed, index));
        body.extend_from_slice(&self.after);
        Bytes::from(body)
    }
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
            let body = BodyTemplate::new(plan, 9).unwrap().body(5);
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
        assert!(BodyTemplate::new(&plan, 9).is_err());
    }

    #[test]
    fn prompts_differ_from_their_first_word_on() {
        let template = BodyTemplate::new(&plan(""), 1).unwrap();
        let bodies: HashSet<Bytes> = (0..10_000).map(|i| template.body(i)).collect();
        assert_eq!(bodies.len(), 10_000);
        let lengths: HashSet<usize> = bodies.iter().map(Bytes::len).collect();
        assert_eq!(lengths.len(), 1, "all prompts have one length");
        let start = template.before.len();
        let firsts: HashSet<&[u8]> = bodies.iter().map(|b| &b[start..start + 8]).collect();
        assert!(firsts.len() > 9_900, "{}", firsts.len());
    }
}
