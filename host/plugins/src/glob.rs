//! The smallest glob that serves: `*` stands for any run of characters, nothing else
//! is special.

/// Longest pattern, in bytes.
pub(crate) const MAX_PATTERN_BYTES: usize = 1024;

/// True when the whole of `text` matches `pattern`. Takes at most
/// `pattern.len() * text.len()` steps.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // After the last star seen: where the pattern goes on, and where the text may.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            p += 1;
            retry = Some((p, t));
        } else if p < pattern.len() && pattern[p] == text[t] {
            p += 1;
            t += 1;
        } else if let Some((after_star, from)) = retry {
            p = after_star;
            t = from + 1;
            retry = Some((after_star, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_run() {
        for (pattern, text, expected) in [
            ("vllm-0", "vllm-0", true),
            ("vllm-0", "vllm-01", false),
            ("vllm-*", "vllm-", true),
            ("vllm-*", "vllm-12", true),
            ("vllm-*", "xvllm-1", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*-a-*-b", "x-a-y-a-z-b", true),
            ("*-a-*-b", "x-a-y-a-z-bc", false),
            ("a**b", "ab", true),
            ("*µ", "aµ", true),
            ("?", "a", false),
            ("[a]", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_stays_cheap() {
        let pattern = "*a".repeat(MAX_PATTERN_BYTES / 2);
        assert!(!matches(&pattern, &format!("{}b", "a".repeat(10_000))));
    }
}
