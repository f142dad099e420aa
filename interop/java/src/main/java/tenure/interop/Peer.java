package tenure.interop;

/** A connected lock client, which answers the requests of its owners. */
public interface Peer {
    /** What names the client in the store, if anything does. */
    String id();

    void close();

    void serve(String verb, String owner, String kind, String key, String[] rest, Answer answer);
}
