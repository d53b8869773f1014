@if lanes
/* Accumulators that take the products in turn. */
#define LANES ((size_t)$lanes)

@end
/* A sum that is made in pairs: a leaf waits until its neighbour comes, and so do their sums on each level. */
struct tree {
    size_t leaves;
    uint64_t waiting[64]; /* by level: used where the bit of `leaves` is 1 */
};

static void add_leaf(struct tree *tree, uint64_t sum, uint32_t *flags)
{
    int32_t level;
    for (level = 0; (tree->leaves >> level & 1) != 0; level++) {
        const struct number right = $unpack_sum;
        sum = added(tree->waiting[level], &right, flags);
    }
    tree->waiting[level] = sum;
    tree->leaves++;
}

/* The root of a tree of so many levels. Where a last neighbour is missing, +0 stands for it. */
static uint64_t root_of_tree(const struct tree *tree, int32_t levels, uint32_t *flags)
{
    const struct number zero = {FINITE, false, LOWEST, 0$high};
    uint64_t sum = 0; /* of the leaves that came last, if there are any below this level */
    bool has_sum = false;
    int32_t level;
    for (level = 0; level < levels; level++) {
        const bool waits = (tree->leaves >> level & 1) != 0;
        const struct number right = $unpack_sum; /* +0 if nothing came after what waits */
        if (waits)
            sum = added(tree->waiting[level], &right, flags);
        else if (has_sum)
            sum = added(sum, &zero, flags);
        has_sum = has_sum || waits;
    }
    return has_sum ? sum : tree->leaves == 0 ? 0 : tree->waiting[levels];
}
