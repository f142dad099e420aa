//! Real servers for tests. Each uses a free port of the loopback and a temporary folder, and ends with its test. Tests
//! can inject faults: pause, kill, restart with or without data, a clock that steps, and a proxy that delays, holds,
//! loses and cuts the traffic.

mod account;
mod certificates;
mod clock;
mod cluster;
mod etcd;
mod installation;
mod kept_data;
mod links;
mod mariadb;
mod needs;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod proxy;
mod redis;
mod sentinel;
mod shim;
mod tree;
mod zookeeper;
mod zookeeper_ensemble;

pub use certificates::Certificates;
pub use clock::SteppedClock;
pub use cluster::RedisCluster;
pub use etcd::{Etcd, EtcdCluster};
pub use mariadb::MariaDb;
pub use needs::{JAVA_LIBRARIES, is_installed, needs};
pub use pgbouncer::PgBouncer;
pub use port::Port;
pub use postgres::Postgres;
pub use process::{Data, Process};
pub use proxy::{Proxy, Way};
pub use redis::{Disk, Redis};
pub use sentinel::{MASTER, Replicated, start_sentinel};
pub use zookeeper::ZooKeeper;
pub use zookeeper_ensemble::ZooKeeperEnsemble;
