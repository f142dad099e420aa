//! Starts servers, and runs a command with their URL in place of `{url}`:
//! `cargo run -p tenure-servers --example with_store -- sentinel tenure --url {url} ls`.

use std::io;
use std::process::{Command, ExitCode};
use std::time::Duration;

use tenure_servers::{
    Disk, Etcd, EtcdCluster, MariaDb, PgBouncer, Postgres, Redis, RedisCluster, Replicated, ZooKeeper,
    ZooKeeperEnsemble,
};

/// Time of the failover, after the start of the command.
const FAILOVER: Duration = Duration::from_secs(20);

/// ZooKeeper's unit of time: a quarter of its own default, so that leases may last 3 s. Write `?tick_time=500ms` in the URL.
const TICK: Duration = Duration::from_millis(500);

/// Lets ZooKeeper's sessions last as long as the leases that commands usually ask for.
const SESSIONS: &str = "maxSessionTimeout=60000\n";

fn main() -> io::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [topology, program, args @ ..] = &args[..] else {
        let usage = "with_store TOPOLOGY COMMAND…: redis, quorum-3, quorum-5, quorum-3-dead, cluster, sentinel, failover, postgres, pgbouncer, \
                     mariadb, etcd, etcd-3, zookeeper, zookeeper-3";
        return Err(io::Error::other(usage));
    };
    let run = |url: String| {
        let args = args.iter().map(|arg| arg.replace("{url}", &url));
        let status = Command::new(program).args(args).status()?;
        Ok(if status.success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    };
    match topology.as_str() {
        "redis" => run(Redis::start()?.url()),
        "quorum-3" => quorum(3, 0, run),
        "quorum-5" => quorum(5, 0, run),
        "quorum-3-dead" => quorum(3, 1, run),
        "cluster" => {
            let cluster = RedisCluster::start(3, false, &["--save", ""], None)?;
            run(cluster.url())
        }
        "postgres" => {
            let server = Postgres::start()?;
            run(server.url())
        }
        "pgbouncer" => {
            let server = Postgres::start()?;
            let pooler = PgBouncer::start(&server)?;
            run(pooler.url())
        }
        "mariadb" => {
            let server = MariaDb::start()?;
            server.ask("CREATE DATABASE locks")?;
            run(format!("{}locks", server.url()))
        }
        "etcd" => {
            let server = Etcd::start()?;
            run(server.url())
        }
        "etcd-3" => {
            let cluster = EtcdCluster::start(&[])?;
            run(cluster.url())
        }
        "zookeeper" => {
            let server = ZooKeeper::start_with(TICK, SESSIONS)?;
            run(server.url())
        }
        "zookeeper-3" => {
            // Serves the proxies between the servers.
            let runtime = tokio::runtime::Runtime::new()?;
            let starting = runtime.spawn(ZooKeeperEnsemble::start_with(TICK, SESSIONS));
            let ensemble = runtime.block_on(starting).map_err(io::Error::other)??;
            run(ensemble.url())
        }
        "sentinel" => {
            let group = Replicated::start(&[])?;
            run(group.url())
        }
        "failover" => {
            let group = Replicated::start(&[])?;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // sleep: the command works meanwhile.
                    std::thread::sleep(FAILOVER);
                    match group.fail_over() {
                        Ok(master) => println!("with_store: server {master} has taken over"),
                        Err(error) => println!("with_store: no failover: {error}"),
                    }
                });
                run(group.url())
            })
        }
        other => Err(io::Error::other(format!("no topology is named `{other}`"))),
    }
}

/// Starts servers, and kills the last `dead` ones. They write to their disks before they reply, and have the token counter
/// of servers that have granted claims: a quorum of other servers grants nothing until each has run for the longest
/// lease, because a restart may have lost claims.
fn quorum(
    count: usize,
    dead: usize,
    run: impl FnOnce(String) -> io::Result<ExitCode>,
) -> io::Result<ExitCode> {
    let servers: io::Result<Vec<_>> = (0..count)
        .map(|_| {
            let server = Redis::start_on(Disk::EveryWrite, None)?;
            server.ask(&["SET", "tenure_tokens", "1"])?;
            Ok(server)
        })
        .collect();
    let mut servers = servers?;
    for server in &mut servers[count - dead..] {
        server.process().kill();
    }
    let hosts: Vec<_> = servers
        .iter()
        .map(|server| server.address().to_string())
        .collect();
    run(format!("redlock://{}?durable=true", hosts.join(",")))
}
