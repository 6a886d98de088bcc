/* Read one token file by the rules of llm.c's data loader, and print what was read.
 *
 *     llmc_reader FILE RANKS B T    ->    "<token count> <sum of (i + 1) * token i, modulo 2^64>"
 *
 * The rules: a header of 256 int32; magic 20240520, version 1; the file is exactly as long as the header says
 * and its size fits an int; and it holds at least RANKS * B * T + 1 tokens. A file that breaks one is refused
 * with a line on standard error and exit status 1.
 */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADER_WORDS = 256, CHUNK = 4096 };

static void refuse(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(EXIT_FAILURE);
}

static int64_t token_count(FILE *file) {
    int32_t header[HEADER_WORDS];
    if (fread(header, sizeof header[0], HEADER_WORDS, file) != HEADER_WORDS) refuse("no header");
    if (header[0] != 20240520) refuse("bad magic");
    if (header[1] != 1) refuse("bad version");
    if (header[2] <= 0) refuse("no tokens");
    return header[2];
}

static int64_t size_of(FILE *file) {
    if (fseek(file, 0, SEEK_END) != 0) refuse("cannot seek");
    return ftell(file);
}

static uint64_t checksum(FILE *file, int64_t count) {
    uint16_t tokens[CHUNK];
    uint64_t sum = 0, place = 0;
    if (fseek(file, HEADER_WORDS * (long)sizeof(int32_t), SEEK_SET) != 0) refuse("cannot seek");
    while (count > 0) {
        size_t n = count < CHUNK ? (size_t)count : CHUNK;
        if (fread(tokens, sizeof tokens[0], n, file) != n) refuse("cannot read the tokens");
        for (size_t i = 0; i < n; i++) sum += ++place * tokens[i];
        count -= (int64_t)n;
    }
    return sum;
}

int main(int argc, char **argv) {
    if (argc != 5) refuse("usage: llmc_reader FILE RANKS B T");
    int64_t batch = atoll(argv[2]) * atoll(argv[3]) * atoll(argv[4]);
    FILE *file = fopen(argv[1], "rb");
    if (file == NULL) refuse("cannot open");
    int64_t count = token_count(file), size = size_of(file);
    if (size > INT_MAX) refuse("too large for an int");
    if (size != HEADER_WORDS * (int64_t)sizeof(int32_t) + count * (int64_t)sizeof(uint16_t)) refuse("bad size");
    if (count < batch + 1) refuse("fewer tokens than one batch of all ranks and one more");
    printf("%lld %llu\n", (long long)count, (unsigned long long)checksum(file, count));
    fclose(file);
    return EXIT_SUCCESS;
}
