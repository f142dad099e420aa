//! Judges one server by its reply to `INFO`: which settings and states weaken locks. Sends no calls.

use redis::InfoDict;
use tenure_backend::Finding;

/// The oldest supported version of Redis.
const OLDEST: (u32, u32) = (6, 2);

/// A number in the reply; 0 if there is none of this name.
pub(super) fn number(info: &InfoDict, name: &str) -> u64 {
    info.get(name).unwrap_or(0)
}

fn is(info: &InfoDict, name: &str, value: &str) -> bool {
    info.get(name).is_some_and(|found: String| found == value)
}

/// Warns if the server is older than supported. Compatible servers report the version of Redis that they resemble.
pub(super) fn version(info: &InfoDict) -> Option<Finding> {
    let reported: String = info.get("redis_version")?;
    let mut parts = reported.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
        return None;
    };
    ((major, minor) < OLDEST).then(|| {
        Finding::warning(
            format!("the server is Redis {reported}, and none before {}.{} is served", OLDEST.0, OLDEST.1),
            "a lock or a release can fail midway for want of a command, such as LPOS, which fair locks need and which came with \
             6.0.6",
        )
    })
}

/// Finding for a server without an append-only file.
pub(super) fn forgetful() -> Finding {
    Finding::warning(
        "the append-only file is off (`appendonly no`), so a restart forgets the latest writes or all of them",
        "after a restart a lock can be held twice until the older lease has ended, and its older holder learns of \
         it only at its next renewal",
    )
}

/// Reports files that the server cannot write.
pub(super) fn unwritable(info: &InfoDict, findings: &mut Vec<Finding>) {
    if is(info, "aof_last_write_status", "err") {
        findings.push(Finding::danger(
            "the append-only file cannot be written: the disk may be full",
            "Redis refuses writes, so held locks end with their leases and no new ones can be had",
        ));
    }
    if is(info, "rdb_last_bgsave_status", "err") {
        findings.push(Finding::danger(
            "the last snapshot could not be saved: see the server's log and its disk",
            "with `stop-writes-on-bgsave-error` Redis refuses writes, so held locks end with their leases",
        ));
    }
}

pub(super) fn replicas(info: &InfoDict, findings: &mut Vec<Finding>) {
    let count = number(info, "connected_slaves");
    if is(info, "role", "slave") {
        findings.push(Finding::danger(
            "this server is a replica of another",
            "no lock can be had from it, and it may show locks that have changed hands",
        ));
    } else if count > 0 {
        findings.push(Finding::warning(
            match count {
                1 => "the server has 1 replica, which receives writes after they are answered".to_owned(),
                _ => format!("the server has {count} replicas, which receive writes after they are answered"),
            },
            "when a replica takes over, the latest locks can be forgotten, and held twice until the older lease has ended: \
             check the fencing token where that matters",
        ));
    }
}

/// With a URL for a single server, reports that the server is a node of a cluster. With a URL for clusters
/// (`as_cluster`), reports a node without a replica.
pub(super) fn cluster(info: &InfoDict, as_cluster: bool) -> Option<Finding> {
    if !as_cluster {
        return (info.get("cluster_enabled") == Some(1)).then(|| {
            Finding::danger(
                "this server is a node of a cluster",
                "only the keys of its own slots could be locked, so locks are refused: write `redis+cluster://` in the URL",
            )
        });
    }
    (info.get("connected_slaves") == Some(0)).then(|| {
        Finding::warning(
            "the node has no replica",
            "while it is down, locks of its slots cannot be had, and held ones end with their leases",
        )
    })
}

pub(super) fn eviction(info: &InfoDict, policy: &str, findings: &mut Vec<Finding>) {
    // Redis does not count its replication and append-only buffers against `maxmemory`.
    let aside = number(info, "mem_not_counted_for_evict");
    let used = number(info, "used_memory").saturating_sub(aside);
    let limit = number(info, "maxmemory");
    if policy == "noeviction" {
        if limit > 0 && used > limit {
            findings.push(Finding::danger(
                "memory is full: `maxmemory` is used up",
                "no new lock can be had; those that are held are still renewed",
            ));
        } else if limit > 0 && used > limit / 10 * 9 {
            findings.push(Finding::warning(
                "nine tenths of `maxmemory` are used",
                "when it is full no new lock can be had; those that are held are still renewed",
            ));
        }
        return;
    }
    let found = format!(
        "the eviction policy is `{policy}`: a full memory makes room by removing keys, locks among them"
    );
    let consequence = "a lock that is held can vanish and be held twice, and its holder learns of it only at the next renewal";
    findings.push(if limit > 0 {
        Finding::danger(found, consequence)
    } else {
        // Without `maxmemory` Redis evicts no keys, so this is only a note.
        Finding::note(format!("{found} (there is no `maxmemory` yet)"), consequence)
    });
}

#[cfg(test)]
mod tests {
    use tenure_backend::Severity;

    use super::*;

    #[test]
    fn the_number_of_replicas_is_worded() {
        for (count, words) in [
            (1, "1 replica, which receives "),
            (2, "2 replicas, which receive "),
        ] {
            let mut findings = Vec::new();
            replicas(
                &InfoDict::new(&format!("role:master\r\nconnected_slaves:{count}\r\n")),
                &mut findings,
            );
            assert!(findings[0].what.contains(words), "{findings:?}");
        }
    }

    #[test]
    fn a_full_memory_is_a_danger_and_a_nearly_full_one_a_warning() {
        for (used, limit, severity) in [
            (100, 0, None),
            (900, 1000, None),
            (901, 1000, Some(Severity::Warning)),
            (999, 1000, Some(Severity::Warning)),
            (1000, 1000, Some(Severity::Warning)),
            (1001, 1000, Some(Severity::Danger)),
        ] {
            let mut findings = Vec::new();
            let reported = format!("used_memory:{used}\r\nmaxmemory:{limit}\r\n");
            eviction(&InfoDict::new(&reported), "noeviction", &mut findings);
            let found = findings.first().map(|finding| finding.severity);
            assert_eq!(
                (found, findings.len()),
                (severity, usize::from(severity.is_some())),
                "{reported}"
            );
            if severity == Some(Severity::Danger) {
                assert!(findings[0].what.contains("memory is full"), "{findings:?}");
                assert!(
                    findings[0].consequence.contains("no new lock can be had"),
                    "{findings:?}"
                );
            }
        }
    }

    #[test]
    fn an_unsupported_version_is_reported() {
        for (reported, is_found) in [
            ("2.8.24", true),
            ("5.0.14", true),
            ("6.0.16", true),
            ("6.1.240", true),
            ("6.2.0", false),
            ("7.0.15", false),
            ("8.2", false),
            ("10.0.1", false),
            ("255.255.255", false),
            ("unknown", false),
            ("", false),
        ] {
            let text = format!("# Server\r\nredis_version:{reported}\r\nredis_git_sha1:0\r\n");
            let found = version(&InfoDict::new(&text));
            assert_eq!(found.is_some(), is_found, "{reported}: {found:?}");
            if let Some(found) = found {
                assert_eq!(found.severity, Severity::Warning);
                assert!(
                    found.what.contains(reported) && found.what.contains("6.2"),
                    "{found:?}"
                );
            }
        }
        assert_eq!(version(&InfoDict::new("# Server\r\nos:Linux\r\n")), None);
    }
}
