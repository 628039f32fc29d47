/* Times of MPI's all-reduce as halite waits for it: a request that is tested 200 times at once, and then every 50 us.
 *
 * The sizes and counts are those of cluster/examples/speed.rs, so that the two can be compared. Built with
 * `cc -O2 -I$MPI/include engine.c $MPI/lib/libmpi_abi.so.1 -Wl,-rpath,$MPI/lib`. */
#include <mpi_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e3 * time.tv_sec + 1e-6 * time.tv_nsec;
}

static void wait_for(MPI_Request *request) {
    for (int tests = 0, done = 0; !done; tests++) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (!done && tests >= 200) usleep(50);
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    const int powers[] = {10, 14, 20, 24, 26};
    int rank, granted;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 5; i++) {
        MPI_Count bytes = (MPI_Count)1 << powers[i];
        float *from = calloc(1, bytes), *into = calloc(1, bytes);
        int rounds = powers[i] < 20 ? 200 : 12;
        double times[200];
        memset(into, 0, bytes);
        for (int round = 0; round < rounds; round++) {
            MPI_Request request;
            double start = now();
            MPI_Iallreduce_c(from, into, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
            wait_for(&request);
            times[round] = now() - start;
        }
        qsort(times, rounds, sizeof(double), by_size);
        if (!rank)
            printf("all-reduce of %lld kB: %.3f ms (%.3f to %.3f)\n", (long long)bytes / 1024, times[rounds / 2], times[0],
                   times[rounds - 1]);
        free(from);
        free(into);
    }
    MPI_Finalize();
    return 0;
}
