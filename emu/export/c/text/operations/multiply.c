    const struct number left = $unpack_a, right = $unpack_b;
    const struct number product = product_of(&left, &right);
    const struct exact x = exact_of(&product);
