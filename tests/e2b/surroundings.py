"""The domain of the server, and the hosts of the internet that E2B's tests contact: DNS and TLS for `suite`."""

import asyncio
import socket
import ssl
import struct

NAMES = {b"\7sandbox\4test\0": "127.0.0.1", b"\7gstatic\3com\0": "8.8.4.4"}
ANSWERS = {"1.1.1.1": "301 Moved Permanently", "8.8.8.8": "302 Found", "8.8.4.4": "204 No Content"}


class Resolver(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, query, peer):
        end = query.index(0, 12) + 1
        address = next((address for name, address in NAMES.items() if query[:end].endswith(name)), None)
        record = b""
        if address and query[end : end + 2] == b"\0\1":
            record = b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + socket.inet_aton(address)
        head = query[:2] + (b"\x81\x80" if address else b"\x81\x83") + bytes([0, 1, 0, bool(record), 0, 0, 0, 0])
        self.transport.sendto(head + query[12 : end + 4] + record, peer)


async def pump(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionResetError:
        # A sandbox has ended: the SDK for Python recognizes it by the reset.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    finally:
        writer.close()


async def serve(reader, writer):
    if answer := ANSWERS.get(writer.get_extra_info("sockname")[0]):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        return writer.close()
    try:
        inner, outer = await asyncio.open_connection("127.0.0.1", 3000)
    except OSError:
        return writer.close()
    await asyncio.gather(pump(reader, outer), pump(inner, writer), return_exceptions=True)


async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("suite.crt", "key.pem")
    await asyncio.get_running_loop().create_datagram_endpoint(Resolver, local_addr=("127.0.0.1", 53))
    async with await asyncio.start_server(serve, "0.0.0.0", 443, ssl=context) as server:
        await server.serve_forever()


asyncio.run(main())
