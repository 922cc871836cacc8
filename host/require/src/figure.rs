//! What a name stands for.

use std::collections::BTreeMap;
use std::fmt;

/// The value of a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Figure {
    /// A number. The true one lies within ± `uncertainty` of it.
    Number {
        /// As measured.
        value: f64,
        /// 0 where none is known.
        uncertainty: f64,
    },
    /// A word.
    Word(String),
    /// Not measured, for this reason.
    NotMeasured(String),
    /// Never got there, for this reason: only a lower bound is known.
    NotReached(String),
}

impl Figure {
    /// A number without an uncertainty; not measured where it is none.
    pub fn exact(value: f64) -> Self {
        Self::number(value, None)
    }

    /// A number with its uncertainty.
    pub fn number(value: f64, uncertainty: Option<f64>) -> Self {
        let uncertainty = uncertainty.map_or(0.0, f64::abs);
        if value.is_nan() || uncertainty.is_nan() {
            return Self::NotMeasured("it is no number".to_owned());
        }
        Self::Number { value, uncertainty }
    }

    /// A number, or the reason why there is none.
    pub fn maybe(value: Option<f64>, uncertainty: Option<f64>, why: &str) -> Self {
        value.map_or_else(
            || Self::NotMeasured(why.to_owned()),
            |value| Self::number(value, uncertainty),
        )
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = |f: &mut fmt::Formatter<'_>, what: &str, why: &str| {
            if why.is_empty() {
                f.write_str(what)
            } else {
                write!(f, "{what} ({why})")
            }
        };
        match self {
            Self::Number { value, uncertainty } if *uncertainty > 0.0 => {
                write!(f, "{} ± {}", short(*value), short(*uncertainty))
            }
            Self::Number { value, .. } => f.write_str(&short(*value)),
            Self::Word(word) => write!(f, "{word:?}"),
            Self::NotMeasured(why) => reason(f, "not measured", why),
            Self::NotReached(why) => reason(f, "not reached", why),
        }
    }
}

/// Six significant digits, as few as say it. Only shown: it is the whole number that is compared.
fn short(value: f64) -> String {
    let size = value.abs();
    if value == value.trunc() && size < 1e15 {
        return value.to_string();
    }
    if !(1e-4..1e15).contains(&size) {
        return format!("{value:e}");
    }
    let whole = size.log10().floor() as i32;
    let decimals = usize::try_from(5 - whole).unwrap_or(0).max(1);
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Figures by name.
pub type Figures = BTreeMap<String, Figure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_short_as_they_are() {
        for (value, text) in [
            (41.2, "41.2"),
            (0.0, "0"),
            (12_345_678.0, "12345678"),
            (0.994_999_999, "0.995"),
            (0.000_000_12, "1.2e-7"),
            (-3.5, "-3.5"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(Figure::exact(value).to_string(), text);
        }
        assert_eq!(Figure::number(12.5, Some(0.25)).to_string(), "12.5 ± 0.25");
        assert_eq!(
            Figure::exact(f64::NAN).to_string(),
            "not measured (it is no number)"
        );
    }
}
