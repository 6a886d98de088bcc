// Reads shards by the rules of llm.c's llmc/dataloader.h, and writes every batch that each rank trains on.
//
// dataloader B T RANKS SHARD... > uint16[shards, batches, RANKS, B * T + 1]
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define HEADER_SIZE 256

static void refuse(const char *file, const char *why) {
    fprintf(stderr, "%s: %s\n", file, why);
    exit(1);
}

int main(int argc, char **argv) {
    assert(argc > 4);
    int B = atoi(argv[1]), T = atoi(argv[2]), ranks = atoi(argv[3]);
    size_t batch_bytes = (size_t)ranks * B * T * sizeof(uint16_t);
    uint16_t *buffer = malloc(((size_t)B * T + 1) * sizeof(uint16_t));
    for (int shard = 4; shard < argc; shard++) {
        FILE *file = fopen(argv[shard], "rb");
        if (!file) refuse(argv[shard], "cannot be opened");
        int header[HEADER_SIZE];
        if (fread(header, sizeof(int), HEADER_SIZE, file) != HEADER_SIZE) refuse(argv[shard], "no header");
        if (header[0] != 20240520) refuse(argv[shard], "bad magic");
        if (header[1] != 1) refuse(argv[shard], "bad version");
        int64_t tokens = header[2];
        if (tokens <= 0) refuse(argv[shard], "no tokens");
        fseek(file, 0, SEEK_END);
        int64_t size = ftell(file);
        if (size != (int64_t)(HEADER_SIZE * sizeof(int) + tokens * sizeof(uint16_t))) refuse(argv[shard], "bad size");
        if (tokens < (int64_t)ranks * B * T + 1) refuse(argv[shard], "too few tokens");
        size_t batches = (tokens * sizeof(uint16_t) - sizeof(uint16_t)) / batch_bytes;
        for (size_t batch = 0; batch < batches; batch++) {
            for (int rank = 0; rank < ranks; rank++) {
                int64_t offset = HEADER_SIZE * sizeof(int) + batch * batch_bytes + (int64_t)rank * B * T * sizeof(uint16_t);
                fseek(file, (int)offset, SEEK_SET);
                if (fread(buffer, sizeof(uint16_t), (size_t)B * T + 1, file) != (size_t)B * T + 1)
                    refuse(argv[shard], "ends within a batch");
                fwrite(buffer, sizeof(uint16_t), (size_t)B * T + 1, stdout);
            }
        }
        fclose(file);
    }
    free(buffer);
    return 0;
}
