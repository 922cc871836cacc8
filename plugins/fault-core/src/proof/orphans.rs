//! Processes that outlived their parent hold memory and ports: the report must say so.
//!
//! What is read some time after the kill is what the victim's own clean-up left. Whoever supervises
//! the replica saw what was there the moment the main process ended (`target.orphans-at-exit`).

use super::Facts;

/// A process that was there when the main process ended.
struct Orphan<'f> {
    pid: &'f str,
    title: String,
}

/// What is known of descendants that outlived the kill, in one clause.
pub(super) fn statement(facts: &Facts<'_>, role: &str) -> String {
    let left = facts.read(&format!("process.{role}.orphaned-pids"));
    let (during, after) = (left.during.map(pids), left.after.map(pids));
    // The reading nearest to the kill: a later one may be about a later end.
    let at_exit = facts.read("target.orphans-at-exit");
    let at_exit = at_exit.during.or(at_exit.after).map(orphans);
    match at_exit {
        Some(orphans) if !orphans.is_empty() => outlived(&orphans, during, after),
        Some(_) => looked_at(during, after, "no descendant survived it"),
        None => looked_at(
            during,
            after,
            "no descendant was there any more when looked at",
        ),
    }
}

/// Descendants that are known from the moment the main process ended.
fn outlived(orphans: &[Orphan<'_>], during: Option<Vec<&str>>, after: Option<Vec<&str>>) -> String {
    let (number, was, them) = match orphans.len() {
        1 => ("1 descendant".to_owned(), "was", "it"),
        n => (format!("{n} descendants"), "were", "them"),
    };
    let named: Vec<String> = orphans.iter().map(Orphan::name).collect();
    let fate = match (during, after) {
        (_, Some(pids)) if !pids.is_empty() => {
            format!("pid {} survived to the end", pids.join(", "))
        }
        (Some(pids), Some(_)) if !pids.is_empty() => format!("{was} gone at the end"),
        (Some(pids), None) if !pids.is_empty() => format!(
            "pid {} was there when looked at, whether to the end was not read",
            pids.join(", ")
        ),
        (Some(_), _) | (_, Some(_)) => format!("{was} gone when looked at"),
        (None, None) => format!("what became of {them} was not read"),
    };
    format!(
        "{number} outlived the main process ({}) and {fate}",
        named.join("; ")
    )
}

/// Descendants by later looks alone. `none` is what an empty look means.
fn looked_at(during: Option<Vec<&str>>, after: Option<Vec<&str>>, none: &str) -> String {
    match (during, after) {
        (_, Some(pids)) if !pids.is_empty() => format!(
            "its descendants {} survived as orphans to the end",
            pids.join(", ")
        ),
        (Some(pids), Some(_)) if !pids.is_empty() => format!(
            "its descendants {} survived it as orphans for a while",
            pids.join(", ")
        ),
        (Some(pids), None) if !pids.is_empty() => format!(
            "its descendants {} survived it as orphans, whether to the end was not read",
            pids.join(", ")
        ),
        (Some(_), _) | (_, Some(_)) => none.to_owned(),
        (None, None) => "whether descendants survived it was not read".to_owned(),
    }
}

fn pids(text: &str) -> Vec<&str> {
    text.split([',', ' ', '\n'])
        .filter(|pid| !pid.is_empty())
        .collect()
}

/// Reads `pid:title` items separated by spaces. A title may itself contain spaces: a word that does
/// not begin an item belongs to the title before it.
fn orphans(text: &str) -> Vec<Orphan<'_>> {
    let mut all = Vec::<Orphan<'_>>::new();
    for word in text.split_whitespace() {
        let item = word
            .split_once(':')
            .filter(|(pid, _)| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()));
        match (item, all.last_mut()) {
            (Some((pid, title)), _) => all.push(Orphan {
                pid,
                title: title.to_owned(),
            }),
            (None, Some(last)) => {
                last.title.push(' ');
                last.title.push_str(word);
            }
            (None, None) => {}
        }
    }
    all
}

impl Orphan<'_> {
    fn name(&self) -> String {
        if self.title.is_empty() {
            format!("pid {}", self.pid)
        } else {
            format!("{}, pid {}", self.title, self.pid)
        }
    }
}
