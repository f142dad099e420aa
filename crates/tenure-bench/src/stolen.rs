//! Steal time: the time for which the host of a virtual machine runs other machines on its cores.

/// Ticks of all cores since the system started, and the stolen part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoresTime {
    stolen: u64,
    all: u64,
}

impl CoresTime {
    /// Reads the time. `None` if the system does not report steal time.
    pub(crate) fn now() -> Option<Self> {
        Self::read(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line, for all cores: the times for user, nice, system, idle, iowait, irq, softirq and steal.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> = line
            .split_ascii_whitespace()
            .take(8)
            .map_while(|time| time.parse().ok())
            .collect();
        let stolen = *times.get(7)?;
        let all = times.iter().sum();
        Some(CoresTime { stolen, all })
    }
}

/// The stolen part (0 to 1) of the time between two readings. Zero if the system reports no stolen time, or no time
/// has passed.
pub(crate) fn part(before: Option<CoresTime>, after: Option<CoresTime>) -> f64 {
    match (before, after) {
        (Some(before), Some(after)) if after.all > before.all => {
            after.stolen.saturating_sub(before.stolen) as f64 / (after.all - before.all) as f64
        }
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  100 0 50 800 0 0 10 40 0 0\ncpu0 50 0 25 400 0 0 5 20 0 0\n";
    const AFTER: &str = "cpu  140 0 60 835 0 0 10 55 0 0\ncpu0 60 0 30 410 0 0 5 28 0 0\n";

    #[test]
    fn steal_time_is_a_part_of_the_time_of_all_cores() {
        let (before, after) = (CoresTime::read(BEFORE), CoresTime::read(AFTER));
        assert_eq!(part(before, after), 0.15);
        assert_eq!(part(before, before), 0.0);
    }

    #[test]
    fn without_steal_time_in_proc_the_part_is_zero() {
        for text in [
            "",
            "cpu  1 2 3\n",
            "intr 5 6 7 8 9 1 2 3\n",
            "cpu  a b c d e f g h\n",
        ] {
            assert_eq!(CoresTime::read(text), None, "{text:?}");
            assert_eq!(part(CoresTime::read(text), CoresTime::read(AFTER)), 0.0);
        }
    }
}
