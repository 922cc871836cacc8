//! Whether figures meet a requirement: certainly, certainly not, or not known.

use std::cmp::Ordering;
use std::fmt;

use crate::parse::{Expression, Operand, Sign};
use crate::{Figure, Figures, Requirement};

/// What is known of a requirement. Joined as in Kleene's logic: what is not known decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Certainly.
    Yes,
    /// Certainly not.
    No,
    /// A figure is not measured, was not reached, or its uncertainty spans the bound.
    Unknown,
}

/// How a requirement came out, and what its names stood for.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// As it was written.
    pub requirement: String,
    /// What is known of it.
    pub holds: Holds,
    /// Its names with their figures, in order.
    pub figures: Vec<(String, Figure)>,
}

impl Answer {
    /// Whether it is met, which nothing is that is not certain.
    pub fn met(&self) -> bool {
        self.holds == Holds::Yes
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.met() { "met" } else { "not met" };
        write!(f, "require {}: {word}", self.requirement)?;
        for (i, (name, figure)) in self.figures.iter().enumerate() {
            // One name stands in the requirement already.
            if self.figures.len() == 1 {
                write!(f, ", {figure}")?;
            } else {
                let join = if i == 0 { ", " } else { "; " };
                write!(f, "{join}{name} {figure}")?;
            }
        }
        let measured = |(_, figure): &(String, Figure)| {
            matches!(figure, Figure::Number { .. } | Figure::Word(_))
        };
        if self.holds == Holds::Unknown && self.figures.iter().all(measured) {
            f.write_str(" (the uncertainty spans the bound)")?;
        }
        Ok(())
    }
}

impl Requirement {
    /// Holds figures to the requirement. A name that is not among them is not measured.
    pub fn answer(&self, figures: &Figures) -> Answer {
        let of = |name: &str| {
            figures
                .get(name)
                .cloned()
                .unwrap_or_else(|| Figure::NotMeasured(String::new()))
        };
        Answer {
            requirement: self.to_string(),
            holds: evaluate(&self.expression, &of),
            figures: self
                .names()
                .into_iter()
                .map(|name| (name.to_owned(), of(name)))
                .collect(),
        }
    }
}

fn evaluate(expression: &Expression, of: &impl Fn(&str) -> Figure) -> Holds {
    match expression {
        Expression::All(parts) => join(parts, of, Holds::Yes, Holds::No),
        Expression::Any(parts) => join(parts, of, Holds::No, Holds::Yes),
        Expression::Compare(a, sign, b) => compare(&value(a, of), *sign, &value(b, of)),
    }
}

/// `decided` as soon as one part is; `otherwise` if every part is; else it is not known.
fn join(
    parts: &[Expression],
    of: &impl Fn(&str) -> Figure,
    otherwise: Holds,
    decided: Holds,
) -> Holds {
    let mut all = otherwise;
    for part in parts {
        match evaluate(part, of) {
            found if found == decided => return decided,
            Holds::Unknown => all = Holds::Unknown,
            _ => {}
        }
    }
    all
}

fn value(operand: &Operand, of: &impl Fn(&str) -> Figure) -> Figure {
    match operand {
        Operand::Name(name) => of(name),
        Operand::Number(number) => Figure::exact(*number),
        Operand::Word(word) => Figure::Word(word.clone()),
    }
}

fn compare(a: &Figure, sign: Sign, b: &Figure) -> Holds {
    match (a, b) {
        (
            Figure::Number {
                value: a,
                uncertainty: ua,
            },
            Figure::Number {
                value: b,
                uncertainty: ub,
            },
        ) => numbers((*a, *ua), sign, (*b, *ub)),
        (Figure::Word(a), Figure::Word(b)) => match sign {
            Sign::Equal => certain(a == b),
            Sign::NotEqual => certain(a != b),
            // No order of words was written, and none of two names is known.
            _ => Holds::Unknown,
        },
        // A word is no number: neither equal nor unlike, as far as anyone meant.
        _ => Holds::Unknown,
    }
}

fn certain(yes: bool) -> Holds {
    if yes { Holds::Yes } else { Holds::No }
}

/// Compares the intervals in which the true numbers lie.
fn numbers((a, ua): (f64, f64), sign: Sign, (b, ub): (f64, f64)) -> Holds {
    let (a_lo, a_hi) = (a - ua, a + ua);
    let (b_lo, b_hi) = (b - ub, b + ub);
    let between = |x: f64, y: f64, wanted: &[Ordering]| {
        // An infinite uncertainty of an infinite figure is no number.
        x.partial_cmp(&y)
            .is_some_and(|found| wanted.contains(&found))
    };
    let below: &[Ordering] = &[Ordering::Less];
    let at_most: &[Ordering] = &[Ordering::Less, Ordering::Equal];
    let known = |yes: bool, no: bool| match (yes, no) {
        (true, _) => Holds::Yes,
        (_, true) => Holds::No,
        _ => Holds::Unknown,
    };
    let apart = between(a_hi, b_lo, below) || between(b_hi, a_lo, below);
    let same = ua == 0.0 && ub == 0.0 && a == b;
    match sign {
        Sign::Less => known(between(a_hi, b_lo, below), between(b_hi, a_lo, at_most)),
        Sign::LessOrEqual => known(between(a_hi, b_lo, at_most), between(b_hi, a_lo, below)),
        Sign::Greater => known(between(b_hi, a_lo, below), between(a_hi, b_lo, at_most)),
        Sign::GreaterOrEqual => known(between(b_hi, a_lo, at_most), between(a_hi, b_lo, below)),
        Sign::Equal => known(same, apart),
        Sign::NotEqual => known(apart, same),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figures() -> Figures {
        [
            ("exact", Figure::exact(30.0)),
            ("near", Figure::number(29.9, Some(0.25))),
            ("lost", Figure::NotMeasured("no probe answered".to_owned())),
            ("never", Figure::NotReached("run 3: at least 40".to_owned())),
            ("word", Figure::Word("a_lower".to_owned())),
        ]
        .map(|(name, figure)| (name.to_owned(), figure))
        .into()
    }

    #[test]
    fn only_what_is_certain_is_met() {
        for (text, holds) in [
            ("exact <= 30", Holds::Yes),
            ("exact < 30", Holds::No),
            ("30 >= exact", Holds::Yes),
            ("exact == 30", Holds::Yes),
            ("exact != 30", Holds::No),
            // 29.65 to 30.15.
            ("near <= 30", Holds::Unknown),
            ("near <= 30.2", Holds::Yes),
            ("near > 30.2", Holds::No),
            ("near >= 29.6", Holds::Yes),
            ("near == 29.9", Holds::Unknown),
            ("near != 29.9", Holds::Unknown),
            ("near != 31", Holds::Yes),
            ("near <= exact", Holds::Unknown),
            // Not measured is neither small nor large, nor unlike anything.
            ("lost <= 1e9", Holds::Unknown),
            ("lost > 1e9", Holds::Unknown),
            ("lost != 1", Holds::Unknown),
            ("never >= 1", Holds::Unknown),
            ("no_such <= 1", Holds::Unknown),
            ("word == 'a_lower'", Holds::Yes),
            ("word != 'b_lower'", Holds::Yes),
            ("word <= 3", Holds::Unknown),
            ("word == 3", Holds::Unknown),
            // What is not known decides nothing.
            ("lost <= 1 or exact == 30", Holds::Yes),
            ("lost <= 1 or exact == 31", Holds::Unknown),
            ("lost <= 1 and exact == 31", Holds::No),
            ("lost <= 1 and exact == 30", Holds::Unknown),
            // `and` binds closer.
            ("exact == 30 or exact == 1 and exact == 2", Holds::Yes),
            ("(exact == 30 or exact == 1) and exact == 2", Holds::No),
        ] {
            let answer = Requirement::parse(text).unwrap().answer(&figures());
            assert_eq!(answer.holds, holds, "{text}");
            assert_eq!(answer.met(), holds == Holds::Yes);
        }
    }

    #[test]
    fn an_answer_says_what_it_found() {
        for (text, says) in [
            ("exact <= 20", "require exact <= 20: not met, 30"),
            ("exact <= 30", "require exact <= 30: met, 30"),
            (
                "near <= 30",
                "require near <= 30: not met, 29.9 ± 0.25 (the uncertainty spans the bound)",
            ),
            (
                "lost <= 30",
                "require lost <= 30: not met, not measured (no probe answered)",
            ),
            (
                "never <= 30 or word == 'x'",
                "require never <= 30 or word == 'x': not met, never not reached (run 3: at least 40); word \"a_lower\"",
            ),
        ] {
            let answer = Requirement::parse(text).unwrap().answer(&figures());
            assert_eq!(answer.to_string(), says);
        }
    }

    proptest! {
        /// For any two numbers and signs: never both a comparison and its opposite, and no panic.
        #[test]
        fn a_comparison_and_its_opposite_never_both_hold(
            a in any::<f64>(), ua in any::<f64>(), b in any::<f64>(), ub in any::<f64>(),
        ) {
            let (x, y) = (Figure::number(a, Some(ua)), Figure::number(b, Some(ub)));
            for (sign, opposite) in [
                (Sign::Less, Sign::GreaterOrEqual),
                (Sign::Greater, Sign::LessOrEqual),
                (Sign::Equal, Sign::NotEqual),
            ] {
                match compare(&x, sign, &y) {
                    Holds::Yes => prop_assert_eq!(compare(&x, opposite, &y), Holds::No),
                    Holds::No => prop_assert_eq!(compare(&x, opposite, &y), Holds::Yes),
                    Holds::Unknown => prop_assert_eq!(compare(&x, opposite, &y), Holds::Unknown),
                }
            }
        }
    }
}
