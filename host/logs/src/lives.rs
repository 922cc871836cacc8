//! Counting server starts in one log.

use std::collections::BTreeSet;

/// Decides which server start a boundary belongs to.
///
/// A banner starts a life, unless it is a second front end's banner of the same start: then no
/// other boundary came since the life's first banner and another process prints it. Without a
/// banner (excerpts, some wrappers), an engine that initialises after the server had started, or
/// after it had failed or shut down, starts a life.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    life: u32,
    banners: BTreeSet<Option<String>>,
    /// A boundary other than a banner was seen in this life.
    under_way: bool,
    /// The server of this life had started, failed or shut down.
    over: bool,
}

/// Most front ends of one start that are told apart.
const MAX_FRONT_ENDS: usize = 1024;

impl Lives {
    pub(crate) fn of(&mut self, key: &str, process: Option<&str>) -> u32 {
        let process = process.map(str::to_owned);
        let starts = match key {
            "banner" => self.under_way || self.banners.contains(&process),
            "engine_init" => self.over,
            _ => false,
        };
        if self.life == 0 || starts {
            self.life += 1;
            self.banners.clear();
            self.under_way = false;
            self.over = false;
        }
        match key {
            "banner" => {
                if self.banners.len() < MAX_FRONT_ENDS {
                    self.banners.insert(process);
                }
            }
            "startup_complete" | "shutdown" => {
                self.under_way = true;
                self.over = true;
            }
            _ => {
                self.under_way = true;
                self.over |= key.starts_with("failure.");
            }
        }
        self.life
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives(keys: &[(&str, Option<&str>)]) -> Vec<u32> {
        let mut lives = Lives::default();
        keys.iter().map(|(k, p)| lives.of(k, *p)).collect()
    }

    #[test]
    fn a_banner_starts_a_life() {
        let api = Some("APIServer");
        assert_eq!(
            lives(&[
                ("banner", api),
                ("engine_init", None),
                ("startup_complete", api),
                ("failure.engine_dead", api),
                ("banner", api)
            ]),
            [1, 1, 1, 1, 2]
        );
    }

    #[test]
    fn a_restart_loop_of_bare_banners_counts_each() {
        assert_eq!(
            lives(&[("banner", None), ("banner", None), ("banner", None)]),
            [1, 2, 3]
        );
    }

    #[test]
    fn several_front_ends_are_one_start() {
        assert_eq!(
            lives(&[
                ("banner", Some("ApiServer_0")),
                ("banner", Some("ApiServer_1")),
                ("engine_init", None)
            ]),
            [1, 1, 1]
        );
    }

    #[test]
    fn an_excerpt_without_a_banner_starts_at_one_and_counts_engines() {
        assert_eq!(
            lives(&[
                ("weights_loaded", None),
                ("startup_complete", None),
                ("engine_init", None),
                ("engine_init", None)
            ]),
            [1, 1, 2, 2]
        );
    }
}
