//! Prints what a lock costs on the memory store: held, solo, and among 64 tasks on one key. Beside its peers, and with the
//! worst wait told in turns as well as in time: `cargo xtask bench`.

use std::time::{Duration, Instant};

const SOLO: u32 = 1_000_000;
const TASKS: usize = 64;
const HOT: Duration = Duration::from_secs(2);
const HELD: usize = 100_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = tenure::connect("memory:").await?;
    // First, while the allocator has nothing to spare.
    let before = resident()?;
    let mut guards = Vec::with_capacity(HELD);
    for n in 0..HELD {
        guards.push(client.mutex(format!("held:{n}")).lock().await?);
    }
    println!(
        "held: {} bytes for each of {HELD} locks",
        (resident()? - before) / HELD
    );
    drop(guards);

    let mutex = client.mutex("solo");
    let start = Instant::now();
    for _ in 0..SOLO {
        mutex.lock().await?.unlock().await?;
    }
    println!(
        "solo: {} ns for lock and unlock",
        start.elapsed().as_nanos() / u128::from(SOLO)
    );

    let mut tasks = Vec::new();
    let end = Instant::now() + HOT;
    for _ in 0..TASKS {
        let mutex = client.mutex("hot");
        tasks.push(tokio::spawn(async move {
            let mut waits = Vec::new();
            while Instant::now() < end {
                let asked = Instant::now();
                let guard = mutex.lock().await?;
                waits.push(asked.elapsed());
                guard.unlock().await?;
            }
            Ok::<_, tenure::Error>(waits)
        }));
    }
    let mut waits = Vec::new();
    let mut shares = Vec::new();
    for task in tasks {
        let mine = task.await??;
        shares.push(mine.len());
        waits.extend(mine);
    }
    waits.sort();
    let mean = waits.iter().sum::<Duration>() / u32::try_from(waits.len())?;
    println!(
        "hot: {} hand-overs a second, p50 {:?} each; waits: mean {mean:?}, worst {:?}; poorest task {:.2} of its share",
        waits.len() as u64 / HOT.as_secs(),
        waits[waits.len() / 2] / u32::try_from(TASKS)?,
        waits[waits.len() - 1],
        *shares.iter().min().unwrap_or(&0) as f64 * TASKS as f64 / waits.len() as f64,
    );
    client.close(Duration::from_secs(10)).await?;
    Ok(())
}

/// The process's resident memory, in bytes.
fn resident() -> Result<usize, Box<dyn std::error::Error>> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .ok_or("statm has a second field")?
        .parse()?;
    Ok(pages * 4096)
}
