package tenure.interop;

/** The answer to a request; there is exactly one. */
public final class Answer {
    private final long id;

    Answer(long id) {
        this.id = id;
    }

    /** Answers with null, a boolean, a number or a text. */
    public void done(Object value) {
        boolean bare = value == null || value instanceof Boolean || value instanceof Number;
        print("\"value\":" + (bare ? String.valueOf(value) : quoted(value.toString())));
    }

    public void failed(Throwable error) {
        print("\"error\":" + quoted(error.getClass().getSimpleName()) + ",\"message\":" + quoted(String.valueOf(error.getMessage())));
    }

    private void print(String fields) {
        String line = "{\"id\":" + id + "," + fields + "}";
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static String quoted(String text) {
        return '"' + text.replaceAll("\\p{Cntrl}", " ").replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
