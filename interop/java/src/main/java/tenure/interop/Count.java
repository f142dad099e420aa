package tenure.interop;

import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Increments a number under a lock by reading and then writing it, so that two holders at a time lose an increment. */
public final class Count {
    private Count() {}

    /** Returns the longest wait for the lock in milliseconds. */
    public static long run(
            int turns, Callable<?> acquire, Callable<?> release, Supplier<String> read, Consumer<String> write) throws Exception {
        long longest = 0;
        for (int turn = 0; turn < turns; turn++) {
            long asked = System.nanoTime();
            acquire.call();
            longest = Math.max(longest, System.nanoTime() - asked);
            try {
                String before = read.get();
                write.accept(String.valueOf(before == null ? 1 : Long.parseLong(before) + 1));
            } finally {
                release.call();
            }
        }
        return TimeUnit.NANOSECONDS.toMillis(longest);
    }
}
