package tenure.interop;

/** A connected lock client, which answers the requests of its owners. */
public interface Peer {
    /** The client's name in the store. */
    String id();

    void close();

    void serve(String verb, String owner, String kind, String key, String[] rest, Answer answer);
}
