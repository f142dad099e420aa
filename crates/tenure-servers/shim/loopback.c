// Sockets of a server that would listen at all addresses listen at the loopback only.
// Loaded into a server with LD_PRELOAD.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int bind(int socket, const struct sockaddr *address, socklen_t length) {
    struct sockaddr_storage changed;
    if (length <= sizeof changed) {
        memcpy(&changed, address, length);
        struct sockaddr_in *v4 = (struct sockaddr_in *)&changed;
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&changed;
        if (address->sa_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY)) {
            v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        }
        if (address->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)) {
            inet_pton(AF_INET6, "::ffff:127.0.0.1", &v6->sin6_addr);
        }
        address = (const struct sockaddr *)&changed;
    }
    return (int)syscall(SYS_bind, socket, address, length);
}
