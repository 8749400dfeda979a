/* Graphs for the models, as topology::Graph has them: EDGE(i, j): i sends to j. DISTANCE(i, j): the
 * length of the shortest path from i to j. One of RING, RING_DIRECTED, COMPLETE, ROOT_EXPANDER is
 * defined, and N, the number of workers. */
#define AHEAD(i, j) (((j) + N - (i)) % N)

#if defined(RING_DIRECTED)
#define EDGE(i, j) (AHEAD(i, j) == 1)
#define DISTANCE(i, j) AHEAD(i, j)
#elif defined(RING)
#define EDGE(i, j) (AHEAD(i, j) == 1 || AHEAD(j, i) == 1)
#define DISTANCE(i, j) (AHEAD(i, j) < AHEAD(j, i) -> AHEAD(i, j) : AHEAD(j, i))
#elif defined(COMPLETE)
#define EDGE(i, j) ((i) != (j))
#define DISTANCE(i, j) ((i) == (j) -> 0 : 1)
#elif defined(ROOT_EXPANDER) /* i sends to i + 1 and to i + round(sqrt N); of 4 to 8 workers */
#define ROOT (N < 7 -> 2 : 3)
#define EDGE(i, j) (AHEAD(i, j) == 1 || AHEAD(i, j) == ROOT)
#define DISTANCE(i, j) (AHEAD(i, j) % ROOT + AHEAD(i, j) / ROOT)
#else
#error "which graph?"
#endif

#define SMALLER(a, b) ((a) < (b) -> (a) : (b))
