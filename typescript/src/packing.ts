/** Packs small files into tar archives, and encodes texts as file names. */

const LETTERS = "abcdefghijklmnopqrstuvwxyz234567";
const BLOCK = 512;

/** Returns a file name for any text: a text that is not a valid name is encoded in base 32. */
export function quoted(text: string): string {
  if (/^[A-Za-z0-9_-]{1,120}$/.test(text)) return text;
  const bits = Array.from(new TextEncoder().encode(text), (byte) => byte.toString(2).padStart(8, "0")).join("");
  return `=${(bits.match(/.{1,5}/g) ?? []).map((each) => LETTERS[Number.parseInt(each.padEnd(5, "0"), 2)]).join("")}`;
}

/** Returns the text of a name. */
export function unquoted(name: string): string {
  if (!name.startsWith("=")) return name;
  const bits = Array.from(name.slice(1), (each) => LETTERS.indexOf(each).toString(2).padStart(5, "0")).join("");
  return new TextDecoder().decode(Uint8Array.from(bits.match(/.{8}/g) ?? [], (each) => Number.parseInt(each, 2)));
}

/** Packs files. Their names have at most 100 ASCII characters. */
export function tar(files: Record<string, Uint8Array>): Uint8Array {
  const parts = Object.entries(files).flatMap(([name, contents]) => {
    const header = Buffer.alloc(BLOCK);
    header.write(name);
    header.write("0000644\0", 100);
    header.write(`${contents.length.toString(8).padStart(11, "0")}\0`, 124);
    header.write("00000000000\0        0", 136);
    header.write("ustar\x0000", 257);
    const sum = header.reduce((total, byte) => total + byte, 0);
    header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
    return [header, contents, Buffer.alloc(-contents.length & (BLOCK - 1))];
  });
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)]);
}

/** Unpacks the files of an archive of the server, with GNU's long names. */
export function untar(archive: Uint8Array): Map<string, Uint8Array> {
  const bytes = Buffer.from(archive.buffer, archive.byteOffset, archive.byteLength);
  const files = new Map<string, Uint8Array>();
  const text = (from: number, length: number) => bytes.toString("utf8", from, from + length).split("\0", 1)[0]!;
  for (let at = 0, long: string | undefined; at < bytes.length && bytes[at] !== 0; ) {
    const size = Number.parseInt(text(at + 124, 12), 8);
    const [kind, start] = [String.fromCharCode(bytes[at + 156]!), at + BLOCK];
    if (kind === "0") files.set(long ?? text(at, 100), archive.subarray(start, start + size));
    long = kind === "L" ? text(start, size) : undefined;
    at = start + Math.ceil(size / BLOCK) * BLOCK;
  }
  return files;
}
